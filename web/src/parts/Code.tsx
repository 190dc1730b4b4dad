/** Lines that do the same elsewhere, to be copied. */

import { useEffect, useRef, useState } from "preact/hooks";
import { aroundUnseen, codePoint } from "../bidi";
import { Icon } from "./Icon";

export interface Snippet {
  name: string;
  text: string;
}

export function Code({ snippets }: { snippets: Snippet[] }) {
  const [shown, setShown] = useState(0);
  const text = useRef<HTMLElement>(null);
  const now = snippets[shown] ?? snippets[0];
  if (!now) return null;
  return (
    <div class="code">
      <div class="code-head">
        <div class="tabs" role="tablist" aria-label="Language" onKeyDown={(event) => step(event, shown, snippets.length, setShown)}>
          {snippets.map((snippet, place) => (
            <button
              key={snippet.name}
              type="button"
              role="tab"
              aria-selected={place === shown}
              tabIndex={place === shown ? 0 : -1}
              onClick={() => setShown(place)}
            >
              {snippet.name}
            </button>
          ))}
        </div>
        <CopyButton name={now.name} text={now.text} from={text} />
      </div>
      <pre tabIndex={0} role="tabpanel" aria-label={now.name}>
        <code ref={text}>
          <Exact text={now.text} />
        </code>
      </pre>
    </div>
  );
}

/**
 * A text of which every letter is seen: what cannot be has its number drawn over it.
 *
 * The number is no text, so that copying by hand gives the same letters as the button does.
 */
function Exact({ text }: { text: string }) {
  return (
    <>
      {aroundUnseen(text).map((piece, place) =>
        place % 2 ? (
          <span key={place} class="unseen-letter" data-number={codePoint(piece)}>
            {piece}
          </span>
        ) : (
          piece
        ),
      )}
    </>
  );
}

function step(event: KeyboardEvent, now: number, many: number, show: (place: number) => void): void {
  const by = { ArrowRight: 1, ArrowLeft: many - 1 }[event.key];
  if (by === undefined) return;
  const next = (now + by) % many;
  show(next);
  const tabs = (event.currentTarget as HTMLElement).querySelectorAll<HTMLElement>("[role=tab]");
  tabs[next]?.focus();
}

interface CopyProps {
  name: string;
  text: string;
  from: { current: HTMLElement | null };
}

function CopyButton({ name, text, from }: CopyProps) {
  const [said, setSaid] = useState<"" | "Copied" | "Press Ctrl+C">("");
  useEffect(() => {
    const timer = setTimeout(() => setSaid(""), 2500);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => setSaid((await copied(text, from.current)) ? "Copied" : "Press Ctrl+C");
  return (
    <button type="button" class="quiet" onClick={() => void copy()}>
      <Icon name={said === "Copied" ? "done" : "copy"} />
      <span aria-live="polite">
        {said || "Copy"}
        <span class="unseen"> the {name} code</span>
      </span>
    </button>
  );
}

/** Copies, or selects the text where the browser keeps the clipboard from pages without TLS. */
async function copied(text: string, from: HTMLElement | null): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    if (from) getSelection()?.selectAllChildren(from);
    return false;
  }
}
