/** A table: its columns, best keys first; a click searches with one. */

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
import { ENRICH, FILTERS, MAP } from "../route";
import { count, counted, genericKey, percent, sameWords, size, sourceKey } from "../words";
import { BestJoins } from "./BestJoins";

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

/** Shown for a table that no longer exists. */
export function Lost({ source }: { source: Source }) {
  const upload = "upload" in source;
  return (
    <Notice
      title={upload ? "Your file has expired" : "This table is no longer in the lake"}
      alone
      icon="table"
      actions={
        <Link to={{ view: "start", text: "" }} class="button primary">
          {upload ? "Upload it again" : "Back to the start"}
        </Link>
      }
    >
      <p>
        {upload
          ? "Uploads are kept for a limited time and are never added to the lake. Upload the file again to continue."
          : "It may have been renamed or removed. Search for part of its name."}
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
      {"upload" in source && keys.length > 1 && <BestJoins source={source} />}
      <section aria-labelledby="keys">
        <h2 id="keys">Which column do you want to join on?</h2>
        <p class="hint under">
          Best keys first: few missing cells, few repeated values, text before numbers.
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
            label="Rows of the table"
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
      <p class="kicker">{"upload" in source ? "Your table" : "Table in the lake"}</p>
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
        <Link to={{ view: "enrich", source, ...ENRICH }} class="button">
          <Icon name="plus" /> Enrich
        </Link>
        {"table" in source ? (
          <Link to={{ view: "map", ...MAP, table: source.table }} class="button">
            <Icon name="map" /> Show on map
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
      <Icon name="close" /> Delete this upload
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
        <Meter share={column.key} label={`Quality as a key: ${percent(column.key)}`} />
        <Icon name="next" />
        {warning && <span class="key-warning">{warning}</span>}
      </Link>
    </li>
  );
}

function NoKeys() {
  return (
    <Notice title="No column can be used for a search" icon="table">
      <p>
        A key needs several distinct values. Long texts, empty columns and columns with few distinct
        values are left out.
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
