/** Keeps marks of writing direction within the text they stand in, or makes them seen. */

const ISOLATES = "\u2066\u2067\u2068";
const EMBEDDINGS = "\u202a\u202b\u202d\u202e";
const [POP_ISOLATE, POP_EMBEDDING] = ["\u2069", "\u202c"];
const ANY = /[\u202a-\u202e\u2066-\u2069]/;

/**
 * Closes every direction a text leaves open, and drops closings of what it did not open.
 *
 * An element that isolates its text is itself closed by such a mark: a text with one too many, or
 * one too few, would turn round what stands after it.
 */
export function balanced(text: string): string {
  if (!ANY.test(text)) return text;
  const open: string[] = [];
  let kept = "";
  for (const letter of text) {
    if (ISOLATES.includes(letter)) open.push(POP_ISOLATE);
    else if (EMBEDDINGS.includes(letter)) open.push(POP_EMBEDDING);
    else if (letter === POP_EMBEDDING) {
      if (open.at(-1) !== letter) continue;
      open.pop();
    } else if (letter === POP_ISOLATE) {
      const place = open.lastIndexOf(letter);
      if (place < 0) continue;
      kept += open.splice(place + 1).reverse().join("");
      open.pop();
    }
    kept += letter;
  }
  return kept + open.reverse().join("");
}

/** Letters that are not seen, or that move others: marks of format, controls, other ends of lines. */
const UNSEEN = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/u;

/** Cuts a text before and after every letter that is not seen; those are the odd pieces. */
export function aroundUnseen(text: string): string[] {
  return text.split(new RegExp(`(${UNSEEN.source})`, "u"));
}

/** What stands for a letter that is not seen. */
export function codePoint(letter: string): string {
  return `U+${(letter.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}
