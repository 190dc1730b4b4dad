/** Reads the values of a column out of pasted text. */

/** One value a line; of a line alone, what tabs, semicolons or commas part. */
export function pastedValues(text: string): string[] {
  const lines = tidy(text.split(/\r\n|\r|\n/));
  const only = lines.length === 1 ? lines[0] : undefined;
  if (only === undefined) return lines.map((line) => line.split("\t")[0]?.trim() ?? "").filter(Boolean);
  const mark = ["\t", ";", ","].find((one) => only.includes(one));
  return mark ? tidy(only.split(mark)) : lines;
}

function tidy(parts: string[]): string[] {
  return parts.map((part) => part.trim()).filter(Boolean);
}
