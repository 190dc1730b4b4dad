/** The tables of the lake, page after page. */

import { useRef, useState } from "preact/hooks";
import { firstTables } from "../api/paging";
import { api } from "../api/service";
import type { TableEntry, TableList } from "../api/types";
import { useRequest } from "../api/useRequest";
import { Link } from "../navigate";
import { Name } from "../parts/Name";
import { Answer, Notice } from "../parts/Notice";
import { count, sameWords, size } from "../words";

const PAGE = 24;

export function Browse() {
  const [wanted, setWanted] = useState(PAGE);
  const known = useRef<TableList | undefined>(undefined);
  const list = useRequest(`tables ${wanted}`, (signal) =>
    firstTables((offset, limit) => api.tables("", offset, limit, signal), wanted, known.current),
  );
  if (list.data) known.current = list.data;
  return (
    <Answer of={list} label="Reading the list of tables">
      {({ tables, total }) =>
        total === 0 ? (
          <Notice title="This lake has no tables yet" icon="table">
            <p>
              Add some with <code>deepjoin add</code>; they appear here without a restart.
            </p>
          </Notice>
        ) : (
          <>
            <TableEntries tables={tables} />
            {tables.length < total && (
              <button type="button" class="wide" onClick={() => setWanted(tables.length + 2 * PAGE)}>
                Show more of {count(total)} tables
              </button>
            )}
          </>
        )
      }
    </Answer>
  );
}

export function TableEntries({ tables }: { tables: TableEntry[] }) {
  return (
    <ul class="entries">
      {tables.map((table) => (
        <li key={table.name}>
          <Link to={{ view: "table", source: { table: table.name } }} class="entry">
            <Name text={table.name} class="strong" />
            <span class="entry-size">
              {size(table.rows, table.columns)}
              {table.title && !sameWords(table.title, table.name) && (
                <>
                  {" · "}
                  <Name text={table.title} most={60} />
                </>
              )}
            </span>
            <span class="entry-names">
              {table.names.map((name, place) => (
                <span key={place}>
                  {place > 0 && ", "}
                  <Name text={name} most={30} />
                </span>
              ))}
              {table.columns > table.names.length && ", …"}
            </span>
          </Link>
        </li>
      ))}
    </ul>
  );
}
