/** Gives a file to the browser to save. */

import type { Fetched } from "./api/client";

export function save({ blob, name }: Fetched): void {
  const address = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
