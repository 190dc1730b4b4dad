/** Keeps marks of writing direction within the text they stand in. */

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
