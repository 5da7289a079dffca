/** Flags as they would be typed, for a command that is run in a process of its own. */
import { Command, type Option } from 'commander';
import { addEngineFlags, type EngineFlags } from '../flags.js';

/** One flag; none where its value is the default of one that negates. */
export function typedFlag(option: Option, value: unknown): string[] {
  if (value === undefined || value === option.negate) return [];
  if (typeof value === 'boolean') return [option.long!];
  // Of a list that may be empty the word for that is "none".
  const text = Array.isArray(value) ? (value.length === 0 ? 'none' : value.join(',')) : String(value);
  return [`${option.long}=${text}`];
}

/** The engine's. */
export function engineArguments(flags: EngineFlags): string[] {
  return addEngineFlags(new Command()).options.flatMap((option) =>
    typedFlag(option, flags[option.attributeName() as keyof EngineFlags]),
  );
}
