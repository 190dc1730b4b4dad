/** A box to pick a table of the lake by typing a part of its name. */

import { useEffect, useId, useState } from "preact/hooks";
import { api } from "../api/service";
import { useRequest } from "../api/useRequest";
import { Name } from "./Name";
import { useSettled } from "./useSettled";

interface PickerProps {
  label: string;
  value: string;
  onPick: (table: string) => void;
}

export function TablePicker({ label, value, onPick }: PickerProps) {
  const id = useId();
  const [text, setText] = useState<string | null>(null);
  const [at, setAt] = useState(0);
  const [entered, setEntered] = useState(false);
  const typed = useSettled(text ?? "");
  const found = useRequest(text === null ? null : `pick ${typed}`, (signal) =>
    api.tables(typed, 0, 8, signal),
  );
  const fresh = typed === text && !found.stale && found.data !== undefined;
  const tables = text === null ? [] : (found.data?.tables ?? []);
  const pick = (table: string) => {
    setText(null);
    onPick(table);
  };
  // Who types fast and presses Enter means the table that is still being looked up.
  useEffect(() => {
    if (!entered || !fresh) return;
    setEntered(false);
    const chosen = tables[at];
    if (chosen) pick(chosen.name);
  }, [entered, fresh]);
  const key = (event: KeyboardEvent & { currentTarget: HTMLInputElement }) => {
    if (event.key === "Escape") setText(null);
    else if (event.key === "Enter" && text !== null) setEntered(true);
    else if (event.key === "ArrowDown") text === null ? setText("") : setAt(Math.min(at + 1, tables.length - 1));
    else if (event.key === "ArrowUp") setAt(Math.max(at - 1, 0));
    else return;
    event.preventDefault();
  };
  return (
    <div class="picker field">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="text"
        dir="auto"
        role="combobox"
        autocomplete="off"
        spellcheck={false}
        placeholder="Part of a table's name"
        aria-expanded={tables.length > 0}
        aria-controls={`${id}-list`}
        aria-activedescendant={tables[at] ? `${id}-${at}` : undefined}
        value={text ?? value}
        onFocus={(event) => event.currentTarget.select()}
        onInput={(event) => {
          setText(event.currentTarget.value);
          setAt(0);
          setEntered(false);
        }}
        onKeyDown={key}
        onBlur={() => setText(null)}
      />
      {text !== null && found.data && (
        <ul id={`${id}-list`} class="picker-list" role="listbox" aria-label={label}>
          {tables.map((table, place) => (
            <li
              key={table.name}
              id={`${id}-${place}`}
              role="option"
              aria-selected={place === at}
              onMouseDown={(event) => {
                event.preventDefault();
                pick(table.name);
              }}
            >
              <Name text={table.name} most={60} />
            </li>
          ))}
          {tables.length === 0 && <li class="hint">No table has that in its name.</li>}
        </ul>
      )}
    </div>
  );
}
