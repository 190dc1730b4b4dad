/** Takes a file: dropped anywhere on the page, or picked. */

import { useEffect, useRef, useState } from "preact/hooks";
import { Icon } from "./Icon";

/** Hears of files dragged over the window; the browser would open them otherwise. */
export function useDropped(onFile: (file: File) => void): boolean {
  const [over, setOver] = useState(false);
  useEffect(() => {
    const dragged = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const hover = (event: DragEvent) => {
      if (!dragged(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent) => {
      if (event.relatedTarget === null) setOver(false);
    };
    const drop = (event: DragEvent) => {
      if (!dragged(event)) return;
      event.preventDefault();
      setOver(false);
      const file = event.dataTransfer?.files[0];
      if (file) onFile(file);
    };
    addEventListener("dragover", hover);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", hover);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  }, [onFile]);
  return over;
}

interface DropProps {
  hint: string;
  busy: boolean;
  onFile: (file: File) => void;
}

export function Drop({ hint, busy, onFile }: DropProps) {
  const input = useRef<HTMLInputElement>(null);
  const picked = (event: Event & { currentTarget: HTMLInputElement }) => {
    const file = event.currentTarget.files?.[0];
    event.currentTarget.value = "";
    if (file) onFile(file);
  };
  return (
    <>
      <button type="button" class="drop" disabled={busy} onClick={() => input.current?.click()}>
        <Icon name="drop" size={28} />
        <strong>{busy ? "Reading your file…" : "Drop a file here, or choose one"}</strong>
        <span class="hint">{hint}</span>
      </button>
      <input
        ref={input}
        type="file"
        class="unseen"
        tabIndex={-1}
        aria-label="File to search with"
        onChange={picked}
      />
    </>
  );
}
