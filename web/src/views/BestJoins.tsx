/** Which columns of a table join best: a search with all of them, best key first. */

import { api } from "../api/service";
import type { Results, Source } from "../api/types";
import { useRequest } from "../api/useRequest";
import { bestJoins, coverage } from "../hits";
import { Link } from "../navigate";
import { Icon } from "../parts/Icon";
import { Name } from "../parts/Name";
import { Answer } from "../parts/Notice";
import { FILTERS } from "../route";
import { counted, percent, sourceKey } from "../words";
import { joinAddress } from "./HitCard";

const LISTED = 5;

export function BestJoins({ source }: { source: Source }) {
  const found = useRequest<Results>(`best ${sourceKey(source)}`, (signal, early) =>
    api.searchInSteps({ query: source, k: 1, matches: 0 }, signal, early),
  );
  return (
    <section class="panel" aria-labelledby="best-joins">
      <h2 id="best-joins">What joins best</h2>
      <Answer of={found} label="Searching with every column">
        {(data) => <Joins found={data} running={found.early} source={source} />}
      </Answer>
    </section>
  );
}

function Joins({ found, running, source }: { found: Results; running: boolean; source: Source }) {
  const joins = bestJoins(found).slice(0, LISTED);
  if (joins.length === 0 && !running) return <p class="hint">No table of the lake is likely to join with these columns.</p>;
  return (
    <>
      <ol class="best">
        {joins.map(({ column, hit }) => (
          <li key={column}>
            <Link to={joinAddress(source, [column], hit, found.partial ? "any" : undefined)}>
              <Name text={column} most={40} class="strong" />
              <Icon name="plus" size={14} />
              <Name text={hit.table} most={60} class="strong" />
            </Link>
            <span class="hint">
              {percent(coverage(hit))} of its values
              {hit.generic && " · generic key"}
              {hit.brings.columns.length > 0 && ` · adds ${counted(hit.brings.columns.length, "column")}`}
              {" · "}
              <Link to={{ view: "search", source, column, filters: FILTERS }}>
                all hits<span class="unseen"> of {column.slice(0, 60)}</span>
              </Link>
            </span>
          </li>
        ))}
      </ol>
      {found.partial && (
        <p class="hint" role="status">
          Similar values of {found.partial.done} of {counted(found.partial.total, "column")} searched
          {running ? "…" : "; the time was up."}
        </p>
      )}
    </>
  );
}
