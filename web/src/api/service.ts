/** The one client of the page, and where it keeps the token. */

import { Api } from "./client";

const NAME = "deepjoin-token";

export const keep = {
  read: () => sessionStorage.getItem(NAME),
  write: (token: string) => sessionStorage.setItem(NAME, token),
};

export const api = new Api(keep);

/** Takes a token out of the address (``#token=...``), so that it is not shared by a copied link. */
export function takeToken(): void {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  keep.write(token);
  history.replaceState(history.state, "", location.pathname + location.search);
}
