/** Arguments of functions, methods, filters and tests, read by Python's rules. */
import { typeError } from './errors.js';
import { type Arguments, Callable, textOf, typeName, type Value } from './values.js';

/** Stands for an argument that must be given. */
export const REQUIRED = Symbol('required');

/** A parameter: its name, and what it is by default. A name that begins with `/` cannot be given by keyword. */
export type Parameter = readonly [name: string, fallback: Value | typeof REQUIRED];

export const NO_ARGUMENTS: Arguments = { positional: [], keywords: new Map() };

export function positional(...values: readonly Value[]): Arguments {
  return { positional: values, keywords: new Map() };
}

/**
 * The value of each parameter.
 *
 * @throws PythonError TypeError for too many, too few, unknown or doubled arguments
 */
export function bind(name: string, parameters: readonly Parameter[], args: Arguments): Value[] {
  if (args.positional.length > parameters.length) {
    throw typeError(
      `${name}() takes at most ${parameters.length} arguments (${args.positional.length} given)`,
    );
  }
  const names = parameters.map(([parameter]) => parameter);
  for (const keyword of args.keywords.keys()) {
    const at = names.indexOf(keyword);
    if (at < 0) throw typeError(`${name}() got an unexpected keyword argument '${keyword}'`);
    if (at < args.positional.length)
      throw typeError(`${name}() got multiple values for argument '${keyword}'`);
  }
  return parameters.map(([parameter, fallback], i) => {
    // None is a value like any other here.
    if (i < args.positional.length) return args.positional[i]!;
    const value = args.keywords.get(parameter);
    if (value !== undefined) return value;
    if (fallback === REQUIRED)
      throw typeError(`${name}() missing a required argument: '${parameter.replace('/', '')}'`);
    return fallback;
  });
}

/** A function with parameters. */
export function method(
  name: string,
  parameters: readonly Parameter[],
  run: (...values: Value[]) => Value,
): Callable {
  return new Callable(name, (args) => run(...bind(name, parameters, args)));
}

/** The text of a str argument. @throws PythonError TypeError */
export function needText(value: Value, what: string): string {
  const text = textOf(value);
  if (text === undefined) throw typeError(`${what} must be str, not ${typeName(value)}`);
  return text;
}

export function textOrNone(value: Value, what: string): string | undefined {
  return value === null ? undefined : needText(value, what);
}
