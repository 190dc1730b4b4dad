/** A panel that is open on a wide screen and folds away on a narrow one. */

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

interface FoldingProps {
  title: string;
  class: string;
  children: ComponentChildren;
}

export function Folding({ title, class: kind, children }: FoldingProps) {
  const wide = useWide();
  const [open, setOpen] = useState(false);
  return (
    <details
      class={`folding panel ${kind}`}
      open={wide || open}
      onToggle={(event) => !wide && setOpen(event.currentTarget.open)}
    >
      <summary>{title}</summary>
      {children}
    </details>
  );
}

function useWide(): boolean {
  const query = "(min-width: 60rem)";
  const [wide, setWide] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const look = () => setWide(list.matches);
    list.addEventListener("change", look);
    return () => list.removeEventListener("change", look);
  }, []);
  return wide;
}
