/** Notices: nothing to show, or something went wrong. */

import type { ComponentChildren } from "preact";
import { ApiError } from "../api/client";
import type { Requested } from "../api/useRequest";
import { Link } from "../navigate";
import { explain } from "../words";
import { Icon, type IconName } from "./Icon";
import { WholeName } from "./Name";

interface NoticeProps {
  title: string;
  children?: ComponentChildren;
  tone?: "plain" | "warn" | "error";
  icon?: IconName;
  actions?: ComponentChildren;
  /** Whether the view consists of it. */
  alone?: boolean;
}

export function Notice({ title, children, tone = "plain", icon, actions, alone }: NoticeProps) {
  const Heading = alone ? "h1" : "h2";
  return (
    <section class={`notice ${tone}`} role={tone === "error" ? "alert" : "status"}>
      {icon && <Icon name={icon} size={22} />}
      <div class="notice-body">
        <Heading>{title}</Heading>
        {children}
        {actions && <div class="actions">{actions}</div>}
      </div>
    </section>
  );
}

/** An error as a notice; ``lost`` is shown in place of what is not there any more. */
export function Failed({ of, lost }: { of: Requested<unknown>; lost?: ComponentChildren }) {
  const error = asApiError(of.error);
  if (error.kind === "token") return null; // the frame asks for it, in place of the view
  if (error.kind === "missing" && lost) return <>{lost}</>;
  const said = explain(error);
  const actions = said.retry ? (
    <button type="button" class="primary" onClick={of.retry}>
      Try again
    </button>
  ) : (
    <Link to={{ view: "start", text: "" }} class="button">
      Back to the start
    </Link>
  );
  return (
    <Notice title={said.title} tone="error" icon="warn" actions={actions}>
      <Said text={said.text} />
    </Notice>
  );
}

/** The words of the service; they may quote names of any length. */
export function Said({ text }: { text: string }) {
  return (
    <p class="said">
      <WholeName text={text} most={400} />
    </p>
  );
}

export function asApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  return new ApiError("broken", error instanceof Error ? error.message : String(error));
}

/** Grey lines where an answer will be; they come only after a moment. */
export function Waiting({ lines = 4, label }: { lines?: number; label: string }) {
  return (
    <div class="waiting" role="status">
      <span class="unseen">{label}</span>
      {Array.from({ length: lines }, (_, line) => (
        <div class="waiting-line" key={line} />
      ))}
    </div>
  );
}

/** Shows an answer, or why there is none; an older answer stays, dimmed, until the new one comes. */
export function Answer<T>(props: {
  of: Requested<T>;
  label: string;
  lost?: ComponentChildren;
  children: (data: T) => ComponentChildren;
}) {
  const { of, label, lost, children } = props;
  if (of.error) return <Failed of={of} lost={lost} />;
  if (of.data === undefined) return of.slow ? <Waiting label={label} /> : <div class="waiting-room" />;
  return (
    <div class={of.stale && of.slow ? "answer stale" : "answer"} aria-busy={of.stale}>
      {children(of.data)}
    </div>
  );
}
