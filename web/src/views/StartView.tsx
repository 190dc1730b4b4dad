/** The start: upload a table, paste values, or browse the lake. */

import { useEffect, useRef, useState } from "preact/hooks";
import type { Lake } from "../api/types";
import { useLake } from "../lake";
import { navigate } from "../navigate";
import { Drop } from "../parts/Drop";
import { Icon } from "../parts/Icon";
import { asApiError, Notice, Said } from "../parts/Notice";
import { useSettled } from "../parts/useSettled";
import { pastedValues } from "../pasted";
import type { Uploading } from "../upload";
import { bytes, count, counted, explain } from "../words";
import { Browse } from "./Browse";
import { LookUp } from "./LookUp";

export function StartView({ text, uploading }: { text: string; uploading: Uploading }) {
  return (
    <>
      <Hero />
      {uploading.error !== null && <UploadFailed error={uploading.error} />}
      <div class="ways">
        <FileWay uploading={uploading} />
        <PasteWay uploading={uploading} />
      </div>
      <LakeSearch text={text} />
    </>
  );
}

function Hero() {
  const lake = useLake();
  return (
    <div class="hero">
      <h1>Find what joins with your table</h1>
      <p class="lead">
        Upload a table or paste values. See which tables of the lake join with them, why, and what
        they would add.
      </p>
      <dl class="facts" aria-label="The lake in numbers">
        {lake &&
          numbers(lake).map(([name, number]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{count(number)}</dd>
            </div>
          ))}
      </dl>
    </div>
  );
}

/** What there is of the lake; collections of columns do not know their rows. */
function numbers(lake: Lake): [string, number][] {
  const all: [string, number][] = [
    ["tables", lake.tables],
    ["columns", lake.columns],
    ["distinct values", lake.values],
    ["rows", lake.rows],
  ];
  return lake.tables ? all.filter(([, number]) => number > 0) : all;
}

function UploadFailed({ error }: { error: unknown }) {
  const said = explain(asApiError(error));
  return (
    <Notice title={said.title} tone="error" icon="warn">
      <Said text={said.text} />
    </Notice>
  );
}

function FileWay({ uploading }: { uploading: Uploading }) {
  const most = useLake()?.limits.upload_bytes;
  const size = most === undefined ? "" : ` Up to ${bytes(most)}.`;
  return (
    <section class="panel" aria-labelledby="file-way">
      <h2 id="file-way">Upload a file</h2>
      <Drop
        hint={`CSV, Parquet, JSON, Excel and more.${size} It is not added to the lake.`}
        busy={uploading.busy}
        onFile={uploading.start}
      />
    </section>
  );
}

function PasteWay({ uploading }: { uploading: Uploading }) {
  const [text, setText] = useState("");
  const [name, setName] = useState("");
  const values = pastedValues(text);
  const send = (event: Event) => {
    event.preventDefault();
    uploading.paste(values, name.trim());
  };
  return (
    <form class="panel paste" onSubmit={send} aria-labelledby="paste-way">
      <h2 id="paste-way">Paste values</h2>
      <textarea
        aria-label="Values, one per line"
        dir="auto"
        rows={3}
        placeholder={"Ireland\nIndia\nSpain"}
        spellcheck={false}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <div class="paste-row">
        <input
          type="text"
          dir="auto"
          aria-label="Column name"
          placeholder="Column name, e.g. country"
          value={name}
          onInput={(event) => setName(event.currentTarget.value)}
        />
        <button type="submit" class="primary" disabled={values.length === 0 || uploading.busy}>
          {values.length ? `Search ${counted(values.length, "value")}` : "Search"}
        </button>
      </div>
    </form>
  );
}

function LakeSearch({ text }: { text: string }) {
  const [typed, setTyped] = useState(text);
  const settled = useSettled(typed);
  const shown = useRef(text);
  useEffect(() => {
    if (text !== shown.current) setTyped((shown.current = text));
  }, [text]);
  useEffect(() => {
    if (settled === shown.current) return;
    shown.current = settled;
    navigate({ view: "start", text: settled }, true);
  }, [settled]);
  return (
    <section class="browse" aria-labelledby="browse">
      <h2 id="browse">Or browse the lake</h2>
      <SearchBox value={typed} onType={setTyped} />
      {text.trim() ? <LookUp text={text.trim()} /> : <Browse />}
    </section>
  );
}

function SearchBox({ value, onType }: { value: string; onType: (text: string) => void }) {
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    const jump = (event: KeyboardEvent) => {
      const typing = (event.target as HTMLElement).matches("input, textarea, select");
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      box.current?.focus();
    };
    addEventListener("keydown", jump);
    return () => removeEventListener("keydown", jump);
  }, []);
  return (
    <div class="search-box">
      <Icon name="find" />
      <input
        ref={box}
        type="search"
        dir="auto"
        aria-label="Look up a table, a column or a value"
        aria-keyshortcuts="/"
        placeholder="Look up a table, a column or a value"
        autocomplete="off"
        spellcheck={false}
        value={value}
        onInput={(event) => onType(event.currentTarget.value)}
      />
      <kbd aria-hidden="true">/</kbd>
    </div>
  );
}
