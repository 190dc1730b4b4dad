/** A table: its columns as keys, the best first; one click finds what joins with it. */

import { api } from "../api/service";
import type { ColumnDetail, Source, TableDetail } from "../api/types";
import { forget, useRequest } from "../api/useRequest";
import { orderedKeys } from "../keys";
import { Link, navigate } from "../navigate";
import { Meter } from "../parts/Coverage";
import { SampleTable } from "../parts/DataTable";
import { Icon } from "../parts/Icon";
import { Name, WholeName } from "../parts/Name";
import { Answer, Notice } from "../parts/Notice";
import { FILTERS, MAP } from "../route";
import { count, counted, genericKey, percent, sameWords, size, sourceKey } from "../words";

export function useTable(source: Source) {
  return useRequest(sourceKey(source), (signal) =>
    "upload" in source ? api.uploaded(source.upload, signal) : api.table(source.table, signal),
  );
}

export function TableView({ source }: { source: Source }) {
  const table = useTable(source);
  return (
    <Answer of={table} label="Reading the table" lost={<Lost source={source} />}>
      {(data) => <Shown table={data} source={source} />}
    </Answer>
  );
}

/** What to do about a table that is not there any more. */
export function Lost({ source }: { source: Source }) {
  const upload = "upload" in source;
  return (
    <Notice
      title={upload ? "Your file is no longer here" : "This table is no longer in the lake"}
      icon="table"
      actions={
        <Link to={{ view: "start", text: "" }} class="button primary">
          {upload ? "Bring it again" : "To the start"}
        </Link>
      }
    >
      <p>
        {upload
          ? "Files you bring are kept for a while only, and never enter the lake. Drop it again to go on."
          : "It may have been renamed or removed. Look for it by a part of its name."}
      </p>
    </Notice>
  );
}

function Shown({ table, source }: { table: TableDetail; source: Source }) {
  const keys = orderedKeys(table);
  const others = table.columns.filter((column) => !keys.includes(column));
  return (
    <>
      <Title table={table} source={source} />
      <section aria-labelledby="keys">
        <h2 id="keys">Which column should join?</h2>
        <p class="hint under">
          Best keys first: columns that are filled, whose values differ, text before numbers.
        </p>
        {keys.length ? (
          <ul class="keys">
            {keys.map((column) => (
              <KeyRow key={column.name} column={column} source={source} />
            ))}
          </ul>
        ) : (
          <NoKeys />
        )}
      </section>
      {others.length > 0 && <LeftOut columns={others} />}
      {table.sample.length > 0 && (
        <section aria-labelledby="sample">
          <h2 id="sample">First rows</h2>
          <SampleTable
            label="First rows"
            rows={table.sample}
            names={table.columns.map((column) => column.name)}
          />
        </section>
      )}
    </>
  );
}

function Title({ table, source }: { table: TableDetail; source: Source }) {
  return (
    <div class="title">
      <p class="kicker">{"upload" in source ? "Your table" : "Table of the lake"}</p>
      <h1>
        <WholeName text={table.name} />
      </h1>
      <p class="hint">
        {size(table.rows, table.columns.length)}
        {table.title && !sameWords(table.title, table.name) && (
          <>
            {" · "}
            <Name text={table.title} most={120} />
          </>
        )}
      </p>
      {table.notes.map((note, place) => (
        <p key={place} class="hint note">
          <Icon name="warn" size={15} /> <Name text={note} most={300} />
        </p>
      ))}
      <div class="actions">
        {"table" in source ? (
          <Link to={{ view: "map", ...MAP, table: source.table }} class="button">
            <Icon name="map" /> See it on the map
          </Link>
        ) : (
          <ForgetButton upload={source.upload} />
        )}
      </div>
    </div>
  );
}

function ForgetButton({ upload }: { upload: string }) {
  const drop = async () => {
    await api.forget(upload, new AbortController().signal).catch(() => undefined);
    forget(sourceKey({ upload }));
    navigate({ view: "start", text: "" });
  };
  return (
    <button type="button" onClick={() => void drop()}>
      <Icon name="close" /> Forget this file
    </button>
  );
}

function KeyRow({ column, source }: { column: ColumnDetail; source: Source }) {
  const warning = genericKey(column.generic);
  return (
    <li>
      <Link to={{ view: "search", source, column: column.name, filters: FILTERS }} class="key">
        <span class="key-name">
          <Name text={column.name} most={60} class="strong" />
          <span class="badge">{column.type}</span>
        </span>
        <span class="key-samples">
          {column.samples.map((sample, place) => (
            <Name key={place} text={sample} most={32} class="chip" />
          ))}
        </span>
        <span class="key-facts">
          {count(column.distinct)} distinct
          {column.filled < 1 && `, ${percent(column.filled)} filled`}
        </span>
        <Meter share={column.key} label={`As a key: ${percent(column.key)}`} />
        <Icon name="next" />
        {warning && <span class="key-warning">{warning}</span>}
      </Link>
    </li>
  );
}

function NoKeys() {
  return (
    <Notice title="No column can be searched with" icon="table">
      <p>
        A key needs some distinct values. Long texts, empty columns and columns of a few values are
        left out.
      </p>
    </Notice>
  );
}

function LeftOut({ columns }: { columns: ColumnDetail[] }) {
  return (
    <details class="left-out">
      <summary>{counted(columns.length, "column")} left out</summary>
      <ul>
        {columns.map((column) => (
          <li key={column.name}>
            <WholeName text={column.name} most={60} />
            <span class="hint">{column.left_out || "not in the index"}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
