/** Names and cells: always text, kept apart from the direction of what stands around them. */

import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { balanced } from "../bidi";
import { count, pieces, seen, shorten } from "../words";

interface NameProps {
  text: string;
  most?: number;
  class?: string;
}

/** A name, cut where it is absurdly long; the whole of it is in the tooltip. */
export function Name({ text, most = 80, class: kind = "" }: NameProps) {
  const short = balanced(shorten(seen(text), most));
  const cut = short !== text;
  return (
    <bdi class={`name ${kind}`} title={cut ? text : undefined}>
      {pieces(short).map((piece, place) => (
        <Fragment key={place}>
          {place > 0 && <wbr />}
          {piece}
        </Fragment>
      ))}
    </bdi>
  );
}

/** A name that can be opened to its full length, for places that are no link. */
export function WholeName({ text, most = 80, class: kind = "" }: NameProps) {
  const [open, setOpen] = useState(false);
  if (Array.from(text.slice(0, 4 * most + 1)).length <= most)
    return <Name text={text} most={most} class={kind} />;
  return (
    <span class="whole">
      {open ? (
        <bdi class={`name whole-text ${kind}`} tabIndex={0}>
          {balanced(text)}
        </bdi>
      ) : (
        <Name text={text} most={most} class={kind} />
      )}{" "}
      <button type="button" class="quiet small" aria-expanded={open} onClick={() => setOpen(!open)}>
        {open ? "Show less" : `Show all ${count(text.length)} characters`}
      </button>
    </span>
  );
}

/** A cell of a table; empty ones say so to everybody. */
export function Cell({ text, most = 120 }: { text: string | null | undefined; most?: number }) {
  if (text === null || text === undefined)
    return (
      <span class="empty-cell" title="no value">
        –
      </span>
    );
  const short = balanced(shorten(text, most));
  return (
    <bdi class="cell" title={text.length > 24 ? text : undefined}>
      {short}
    </bdi>
  );
}
