/** The filters of a search; on a narrow screen they fold away. */

import { useEffect, useState } from "preact/hooks";
import type { JoinKind, Lake } from "../api/types";
import { useLake } from "../lake";
import { Choice, Select, Slider, Tick } from "../parts/Choice";
import { Folding } from "../parts/Folding";
import { useSettled } from "../parts/useSettled";
import { FILTERS, type Filters } from "../route";
import { joinWords, percent } from "../words";

interface PanelProps {
  filters: Filters;
  onChange: (part: Partial<Filters>, replace?: boolean) => void;
}

const SAYS: Record<JoinKind, string> = {
  any: "Equal values count fully, similar values by their similarity.",
  equi: "Equal values, ignoring case and white space.",
  semantic: "Values with the same meaning count fully, equal or not.",
};

export function FilterPanel(props: PanelProps) {
  return (
    <Folding title={changed(props.filters) ? "Filters (active)" : "Filters"} class="side">
      <Fields {...props} />
    </Folding>
  );
}

function changed(filters: Filters): boolean {
  const { open: _, ...now } = filters;
  const { open: __, ...usual } = FILTERS;
  return JSON.stringify(now) !== JSON.stringify(usual);
}

function Fields({ filters, onChange }: PanelProps) {
  const lake = useLake();
  const join = filters.join || lake?.default_join || "any";
  return (
    <div class="fields">
      <Choice
        label="Join"
        value={join}
        options={(lake?.joins ?? [join]).map((value) => ({
          value,
          label: joinWords(value),
          says: SAYS[value],
        }))}
        onPick={(picked) => onChange({ join: picked, method: fitting(lake, filters.method, picked) })}
      />
      <Slider
        label="Minimum joinability"
        value={filters.least}
        shown={filters.least ? percent(filters.least) : "any"}
        onMove={(least) => onChange({ least }, true)}
      />
      <BringsField value={filters.brings} onSettle={(brings) => onChange({ brings }, true)} />
      <Tick checked={filters.grouped} onTick={(grouped) => onChange({ grouped })}>
        Group by table
      </Tick>
      <Tick checked={!filters.generic} onTick={(hide) => onChange({ generic: !hide })}>
        Hide row numbers, years and flags
      </Tick>
      <details class="more">
        <summary>Method and number of hits</summary>
        <Finer lake={lake} join={join} filters={filters} onChange={onChange} />
      </details>
      {changed(filters) && (
        <button type="button" class="quiet" onClick={() => onChange({ ...FILTERS, open: filters.open })}>
          Clear all filters
        </button>
      )}
    </div>
  );
}

/** Keeps a method only if it can answer the join. */
function fitting(lake: Lake | undefined, method: string, join: JoinKind): string {
  return lake?.methods.find((one) => one.name === method)?.joins.includes(join) ? method : "";
}

function Finer({ lake, join, filters, onChange }: PanelProps & { lake: Lake | undefined; join: JoinKind }) {
  const methods = (lake?.methods ?? []).filter((method) => method.joins.includes(join));
  const method = filters.method || lake?.default_method || "";
  const ks = [5, 10, 20, 50, 100, filters.k].filter((k) => k <= (lake?.limits.k ?? 100));
  return (
    <>
      <Select
        label="Method"
        value={method}
        options={methods.map(({ name }) => ({ value: name, label: name }))}
        hint={methods.find(({ name }) => name === method)?.says}
        onPick={(name) => onChange({ method: name === lake?.default_method ? "" : name })}
      />
      <Select
        label="Hits"
        value={String(filters.k)}
        options={[...new Set(ks)].sort((a, b) => a - b).map((k) => ({ value: String(k), label: `up to ${k}` }))}
        onPick={(k) => onChange({ k: Number(k) })}
      />
      {join !== "equi" && (
        <Slider
          label="Minimum similarity"
          value={filters.tau ?? 0.7}
          least={0.3}
          shown={filters.tau === null ? "default" : filters.tau.toFixed(2)}
          onMove={(tau) => onChange({ tau }, true)}
        />
      )}
    </>
  );
}

function BringsField({ value, onSettle }: { value: string; onSettle: (text: string) => void }) {
  const [text, setText] = useState(value);
  const settled = useSettled(text);
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (settled !== value && settled === text) onSettle(settled);
  }, [settled]);
  return (
    <div class="field">
      <label for="brings">Adds a column named</label>
      <input
        id="brings"
        type="search"
        dir="auto"
        placeholder="e.g. population"
        autocomplete="off"
        spellcheck={false}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
    </div>
  );
}
