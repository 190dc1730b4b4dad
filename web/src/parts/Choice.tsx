/** Small form parts: a choice of few, a number, a switch. */

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

interface ChoiceProps<T extends string> {
  label: string;
  value: T;
  options: { value: T; label: string; says?: string }[];
  onPick: (value: T) => void;
}

/** A choice of few as buttons of one group; arrow keys move it, as radio buttons do. */
export function Choice<T extends string>({ label, value, options, onPick }: ChoiceProps<T>) {
  const name = useId();
  const says = options.find((option) => option.value === value)?.says;
  return (
    <fieldset class="choice">
      <legend>{label}</legend>
      <div class="choice-options">
        {options.map((option) => (
          <label key={option.value}>
            <input
              type="radio"
              name={name}
              checked={option.value === value}
              onChange={() => onPick(option.value)}
            />
            <span>{option.label}</span>
          </label>
        ))}
      </div>
      {says && <p class="hint">{says}</p>}
    </fieldset>
  );
}

interface SelectProps {
  label: string;
  value: string;
  options: { value: string; label: string }[];
  hint?: string | undefined;
  onPick: (value: string) => void;
}

export function Select({ label, value, options, hint, onPick }: SelectProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onPick(event.currentTarget.value)}>
        {options.map((option) => (
          <option key={option.value} value={option.value}>
            {option.label}
          </option>
        ))}
      </select>
      {hint && <p class="hint">{hint}</p>}
    </div>
  );
}

interface SliderProps {
  label: string;
  value: number;
  shown: string;
  step?: number;
  least?: number;
  hint?: string;
  onMove: (value: number) => void;
}

export function Slider({ label, value, shown, step = 0.05, least = 0, hint, onMove }: SliderProps) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>
        {label} <output>{shown}</output>
      </label>
      <input
        id={id}
        type="range"
        min={least}
        max={1}
        step={step}
        value={value}
        aria-valuetext={shown}
        onChange={(event) => onMove(Number(event.currentTarget.value))}
      />
      {hint && <p class="hint">{hint}</p>}
    </div>
  );
}

interface TickProps {
  checked: boolean;
  onTick: (checked: boolean) => void;
  children: ComponentChildren;
}

export function Tick({ checked, onTick, children }: TickProps) {
  return (
    <label class="tick">
      <input
        type="checkbox"
        checked={checked}
        onChange={(event) => onTick(event.currentTarget.checked)}
      />
      <span>{children}</span>
    </label>
  );
}
