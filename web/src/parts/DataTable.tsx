/** Rows of a table, scrolling within their own box; where some are hidden, it says so. */

import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Row } from "../api/types";
import { counted } from "../words";
import { Cell, Name } from "./Name";

export interface Head {
  name: string;
  type?: string | undefined;
  fresh?: boolean;
}

interface DataTableProps {
  label: string;
  heads: Head[];
  rows: (string | null | undefined)[][];
  /** Keeps the first column in sight while the others scroll. */
  pinned?: boolean;
}

export function DataTable({ label, heads, rows, pinned }: DataTableProps) {
  const sheet = useRef<HTMLDivElement>(null);
  const [cut, setCut] = useState(false);
  useLayoutEffect(() => {
    const box = sheet.current;
    if (box) setCut(box.scrollHeight > box.clientHeight + 1);
  }, [rows]);
  return (
    <>
      <div class={pinned ? "sheet pinned" : "sheet"} role="region" aria-label={label} tabIndex={0} ref={sheet}>
        <table>
          <thead>
            <tr>
              {heads.map((head, place) => (
                <th key={place} scope="col" class={kindOf(head)}>
                  {head.fresh && <span class="fresh-mark">new</span>}
                  <Name text={head.name} most={40} />
                  {head.type && <small>{head.type}</small>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row, line) => (
              <tr key={line}>
                {heads.map((head, place) => (
                  <td key={place} class={kindOf(head)}>
                    <Cell text={row[place]} />
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {cut && <p class="hint scrolls">Scroll within the table to see all {counted(rows.length, "row")}.</p>}
    </>
  );
}

function kindOf({ type, fresh }: Head): string {
  const number = type === "integer" || type === "decimal";
  return `${fresh ? "fresh" : ""} ${number ? "number" : ""}`.trim();
}

/** Rows given by column name, as samples are. */
export function SampleTable({ label, rows, names }: { label: string; rows: Row[]; names?: string[] }) {
  const heads = names ?? Object.keys(rows[0] ?? {});
  return (
    <DataTable
      label={label}
      heads={heads.map((name) => ({ name }))}
      rows={rows.map((row) => heads.map((name) => row[name]))}
    />
  );
}
