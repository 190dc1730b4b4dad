/** What one search box finds: tables and columns by name, cells by value. */

import type { ComponentChildren } from "preact";
import { api } from "../api/service";
import type { ColumnPlace, Found, ValueEntry } from "../api/types";
import { useRequest } from "../api/useRequest";
import { Link } from "../navigate";
import { Name } from "../parts/Name";
import { Answer, Notice } from "../parts/Notice";
import { FILTERS } from "../route";
import { count, counted } from "../words";
import { TableEntries } from "./Browse";

const LIMIT = 20;

export function LookUp({ text }: { text: string }) {
  const found = useRequest(`find ${text}`, (signal) => api.find(text, LIMIT, signal));
  return (
    <Answer of={found} label="Looking it up">
      {(data) => (empty(data) ? <NothingFound text={text} /> : <Lists found={data} />)}
    </Answer>
  );
}

function empty({ tables, columns, values }: Found): boolean {
  return tables.length + columns.length + values.length === 0;
}

function NothingFound({ text }: { text: string }) {
  return (
    <Notice title="Nothing found" icon="find">
      <p>
        No table or column has “<Name text={text} most={40} />” in its name, and no cell equals it.
        Names match by any part, values only as a whole, ignoring case. To find similar values,
        paste them above.
      </p>
    </Notice>
  );
}

function Lists({ found }: { found: Found }) {
  return (
    <div class="found">
      {found.values.map((value) => (
        <Group key={value.value} title="Cells" of={value.total}>
          <ValueColumns entry={value} />
        </Group>
      ))}
      {found.columns.length > 0 && (
        <Group title="Columns" of={found.columns.length}>
          <ul class="entries narrow">
            {found.columns.map((column) => (
              <ColumnEntry
                key={`${column.table} ${column.column}`}
                place={column}
                says={`${column.type}, ${counted(column.distinct, "distinct value")}`}
              />
            ))}
          </ul>
        </Group>
      )}
      {found.tables.length > 0 && (
        <Group title="Tables" of={found.tables.length}>
          <TableEntries tables={found.tables} />
        </Group>
      )}
    </div>
  );
}

function Group({ title, of, children }: { title: string; of: number; children: ComponentChildren }) {
  return (
    <section>
      <h3>
        {title} <span class="count">{count(of)}</span>
      </h3>
      {children}
    </section>
  );
}

function ValueColumns({ entry }: { entry: ValueEntry }) {
  return (
    <>
      <p class="hint">
        “<Name text={entry.value} most={60} />” found in {counted(entry.total, "column")}
        {entry.total > entry.columns.length && `; the first ${count(entry.columns.length)}`}:
      </p>
      <ul class="entries narrow">
        {entry.columns.map((column) => (
          <ColumnEntry
            key={`${column.table} ${column.column}`}
            place={column}
            says={`in ${counted(column.rows, "row")}`}
          />
        ))}
      </ul>
    </>
  );
}

function ColumnEntry({ place, says }: { place: ColumnPlace; says: string }) {
  const source = { table: place.table };
  return (
    <li>
      <Link to={{ view: "search", source, column: place.column, filters: FILTERS }} class="entry">
        <Name text={place.column} class="strong" />
        <span class="entry-size">{says}</span>
        <span class="entry-names">
          <Name text={place.table} />
        </span>
      </Link>
    </li>
  );
}
