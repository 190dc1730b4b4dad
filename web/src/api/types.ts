/** What the service answers and accepts, under the names that the page uses. */

import type * as service from "./types.gen";

export type {
  Brings,
  Diagram,
  EnrichAnswer as Enriched,
  EnrichRequest as EnrichBody,
  EnrichStep,
  Hit,
  JoinEdge as Edge,
  JoinFacts as Facts,
  JoinPaths as Paths,
  JoinPreview as Preview,
  LakeSummary as Lake,
  Limits,
  LookedUp as Found,
  PathJoin,
  Match,
  Offer,
  PairDecision,
  Neighbourhood as Graph,
  GraphTable as GraphNode,
  ColumnDescription as ColumnDetail,
  ColumnSummary as ColumnEntry,
  Relation,
  RelationList as Relations,
  Results,
  SearchMethod as Method,
  SeveralMatches as Several,
  SearchRequest as SearchBody,
  SimilarJoins as Similar,
  TableList,
  TableSummary as TableEntry,
  ValueHolders as ValueEntry,
} from "./types.gen";

export type End = service.JoinEnds;
export type JoinKind = service.Hit["join"];
export type Generic = NonNullable<service.Hit["generic"]>;
export type Row = service.TableDescription["sample"][number];

/** A table of the lake, or one that was uploaded, which has a token and expires. */
export type TableDetail = service.TableDescription & Partial<service.UploadDescription>;
export type Source = service.LakeTable | service.UploadTable;
/** The id tells apart columns of a table with the same name, or none; a key of several has all columns. */
export type ColumnPlace = service.ColumnPlace & { column_id?: string; columns?: string[] };

/** All options of a join are part of the page's address, so none is left to its default. */
export type JoinBody = Required<service.JoinRequest>;
export type Aggregate = Extract<NonNullable<JoinBody["aggregate"]>, string>;
export type How = JoinBody["how"];
export type Many = JoinBody["many"];
export type Matching = JoinBody["matching"];
