/** Enrichment: which joins help to predict a column, as a tree with a waterfall of gains. */

import { api } from "../api/service";
import type { Enriched, EnrichStep, Offer, Source } from "../api/types";
import { useRequest } from "../api/useRequest";
import { depths, falls } from "../gains";
import { Link, navigate } from "../navigate";
import { Choice, Select } from "../parts/Choice";
import { Code } from "../parts/Code";
import { Meter } from "../parts/Coverage";
import { Icon } from "../parts/Icon";
import { Name } from "../parts/Name";
import { Answer, Notice } from "../parts/Notice";
import { useSettled } from "../parts/useSettled";
import type { EnrichState } from "../route";
import { count, counted, percent } from "../words";
import { Download, type GetFile } from "./Download";
import { Lost, useTable } from "./TableView";

interface EnrichProps extends EnrichState {
  source: Source;
}

export function EnrichView({ source, target, depth, about }: EnrichProps) {
  const table = useTable(source);
  const words = useSettled(about);
  const body = { left: source, target: target || null, depth, about: target ? "" : words };
  const found = useRequest(`enrich ${JSON.stringify(body)}`, (signal, early: (value: Enriched) => void) =>
    api.enrichInSteps(body, signal, early),
  );
  const change = (part: Partial<EnrichState>, replace = false) =>
    navigate({ view: "enrich", source, target, depth, about, ...part }, replace);
  const name = table.data?.name ?? ("table" in source ? source.table : "your file");
  return (
    <>
      <div class="title">
        <p class="kicker">
          <Link to={{ view: "table", source }}>Back to the table</Link>
        </p>
        <h1>
          Enrich <Name text={name} />
        </h1>
        <p class="hint">Columns of the lake that help to predict one of yours, or all that could be added.</p>
      </div>
      <section class="panel options" aria-label="What to look for">
        <Select
          label="Column to predict"
          value={target}
          options={[
            { value: "", label: "none: show what could be added" },
            ...(table.data?.columns ?? []).map((column) => ({ value: column.name, label: column.name })),
          ]}
          onPick={(picked) => change({ target: picked })}
        />
        <Choice
          label="Joins in a row"
          value={`${depth}`}
          options={([1, 2, 3] as const).map((one) => ({ value: `${one}` as const, label: `${one}` }))}
          onPick={(picked) => change({ depth: Number(picked) as 1 | 2 | 3 })}
        />
        <div class="field">
          <label for="about">About</label>
          <input
            id="about"
            type="search"
            value={about}
            disabled={target !== ""}
            placeholder="such as income"
            onInput={(event) => change({ about: event.currentTarget.value }, true)}
          />
        </div>
      </section>
      <Answer of={found} label="Looking for joins" lost={<Lost source={source} />}>
        {(data) =>
          data.progress ? <Busy at={data.progress} /> : data.metric ? <Gains found={data} /> : <Offers found={data} />
        }
      </Answer>
    </>
  );
}

function Busy({ at }: { at: NonNullable<Enriched["progress"]> }) {
  const measuring = at.what === "measuring";
  return (
    <div class="panel" role="status">
      <p>
        {measuring ? `Measuring the gain: part ${at.done + 1} of ${at.total}` : "Joining "}
        {!measuring && <Name text={at.what} most={60} class="strong" />}
      </p>
      <Meter share={measuring ? at.done / at.total : at.done / (at.done + 5)} label="Progress" />
    </div>
  );
}

function Gains({ found }: { found: Enriched }) {
  const { metric, score_before: before, score_after: after, gain_low: low, gain_high: high } = found;
  if (before === null || after === null || low === null || high === null)
    return (
      <Notice title="Time was up before anything was measured" icon="warn">
        <p>Choose fewer joins in a row, or run deepjoin in Python or a shell, where it has more time.</p>
      </Notice>
    );
  const file: GetFile = (...how) => api.downloadUpload(found.upload, ...how);
  return (
    <>
      <dl class="facts" aria-label="The gain in numbers">
        <div>
          <dt>{metric} without the lake</dt>
          <dd>{figure(before)}</dd>
        </div>
        <div>
          <dt>{metric} with it</dt>
          <dd>{figure(after)}</dd>
        </div>
        <div>
          <dt>gain, 95% interval</dt>
          <dd>
            {signed(low)} to {signed(high)}
          </dd>
        </div>
      </dl>
      {found.stopped === "time" && <p class="hint note">Time was up: this is the best by then.</p>}
      {found.steps.length ? <Waterfall steps={found.steps} before={before} /> : <NoHelp />}
      <div class="getting">
        {found.upload && (
          <section class="panel" aria-labelledby="download">
            <Download title="Download the enriched table" file={file} />
            <div class="go-on">
              <Link class="button" to={{ view: "table", source: { upload: found.upload } }}>
                <Icon name="plus" /> Join more tables to it
              </Link>
            </div>
          </section>
        )}
        {found.sql && (
          <section class="panel" aria-labelledby="same">
            <h2 id="same">Do the same elsewhere</h2>
            <Code snippets={[{ name: "SQL", text: found.sql }]} />
          </section>
        )}
      </div>
      <Rejected found={found} />
    </>
  );
}

function NoHelp() {
  return (
    <Notice title="No table of the lake is sure to help" icon="table">
      <p>The gain is measured on rows that the choice of columns has not seen; it may be chance.</p>
    </Notice>
  );
}

function Waterfall({ steps, before }: { steps: EnrichStep[]; before: number }) {
  const indents = depths(steps);
  const bars = falls(steps.map((step) => step.gain ?? 0), before);
  return (
    <section aria-labelledby="gains">
      <h2 id="gains">Joins, and what each gains</h2>
      <ol class="gains">
        {steps.map((step, place) => (
          <li key={place} style={{ paddingInlineStart: `${(indents[place] ?? 0) * 1.4}rem` }}>
            <span class="gain-name">
              <Link to={{ view: "table", source: { table: step.table } }}>
                <Name text={step.table} most={60} />
              </Link>{" "}
              <span class="hint">
                on <Name text={step.via} most={40} />
                {step.parent >= 0 && (
                  <>
                    {" of "}
                    <Name text={steps[step.parent]?.table ?? ""} most={40} />
                  </>
                )}
                {" · "}
                {percent(step.coverage)} of your rows · probability {percent(step.probability)}
                {step.how !== "equal" && ` · ${step.how}`}
              </span>
              <span class="gain-adds">
                {step.columns.length
                  ? step.columns.map((column) => <Name key={column} text={column} most={40} class="chip" />)
                  : "only leads to another table"}
              </span>
            </span>
            <span class="fall" aria-hidden="true">
              <span
                class={(step.gain ?? 0) < 0 ? "fall-bar loss" : "fall-bar"}
                style={{ insetInlineStart: `${(bars[place]?.from ?? 0) * 100}%`, width: `${(bars[place]?.size ?? 0) * 100}%` }}
              />
            </span>
            <span class="gain-figure">{step.gain === null ? "" : signed(step.gain)}</span>
          </li>
        ))}
      </ol>
    </section>
  );
}

function Rejected({ found }: { found: Enriched }) {
  if (!found.rejected.length) return null;
  return (
    <details class="left-out">
      <summary>Joins and columns not used: {count(found.rejected.length)}</summary>
      <ul>
        {found.rejected.slice(0, 200).map((one, place) => (
          <li key={place}>
            <Name text={`${one.table}: ${one.column}`} most={80} />
            <span class="hint">
              <Name text={one.reason} most={200} />
            </span>
          </li>
        ))}
      </ul>
    </details>
  );
}

function Offers({ found }: { found: Enriched }) {
  if (!found.offers.length)
    return (
      <Notice title="Nothing in the lake joins with this table" icon="table">
        <p>No column of it leads to a table that knows at least a tenth of its values.</p>
      </Notice>
    );
  return (
    <section aria-labelledby="offers">
      <h2 id="offers">{counted(found.total_offers, "column")} could be added</h2>
      <ul class="offers">
        {found.offers.slice(0, 200).map((one, place) => (
          <OfferRow key={place} offer={one} />
        ))}
      </ul>
      {found.offers.length > 200 && <p class="hint">The first 200 of {count(found.total_offers)}.</p>}
      <Rejected found={found} />
    </section>
  );
}

function OfferRow({ offer }: { offer: Offer }) {
  return (
    <li>
      <Name text={offer.column} most={60} class="strong" />
      <span class="hint">
        <Link to={{ view: "table", source: { table: offer.table } }}>
          <Name text={offer.table} most={60} />
        </Link>
        , via <Name text={offer.via} most={40} />, {percent(offer.coverage)} of your rows, probability{" "}
        {percent(offer.probability)}
      </span>
      <span class="gain-adds">
        {offer.examples.map((cell, place) => (
          <Name key={place} text={rounded(cell)} most={24} class="chip" />
        ))}
      </span>
      <Meter share={offer.coverage} label={`${percent(offer.coverage)} of your rows get a value`} />
    </li>
  );
}

/** A mean as few digits as tell it; other cells as they are. */
function rounded(cell: string): string {
  return /^-?\d+\.\d{7,}$/.test(cell) ? String(Number(Number(cell).toPrecision(6))) : cell;
}

function signed(value: number): string {
  return `${value < 0 ? "" : "+"}${figure(value)}`;
}

function figure(value: number): string {
  return `${value < 0 ? "−" : ""}${Math.abs(value).toFixed(3)}`;
}
