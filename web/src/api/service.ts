/** The one client of the page, and where it keeps the token. */

import { Api, type Keep } from "./client";

const NAME = "deepjoin-token";
const listeners = new Set<() => void>();

export const keep: Keep = {
  read: () => sessionStorage.getItem(NAME),
  write: (token) => sessionStorage.setItem(NAME, token),
  refused: (token) => {
    // A late answer to an older token says nothing about the one entered since.
    if (token === keep.read()) listeners.forEach((listener) => listener());
  },
};

/** Calls back whenever the service refuses the token that is kept; returns how to end that. */
export function whenRefused(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

export const api = new Api(keep);

/** Takes a token out of the address (``#token=...``), so that it is not shared by a copied link. */
export function takeToken(): void {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (!token) return;
  keep.write(token);
  history.replaceState(history.state, "", location.pathname + location.search);
}
