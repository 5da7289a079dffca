/** What `/set` changes: the sampling flags of the command line, by their names, while one talks. */
import { Command, InvalidArgumentError, type Option } from 'commander';
import { closestName, didYouMean } from '../../did-you-mean.js';
import { KvantError } from '../../errors.js';
import type { SamplingOptions } from '../../sampling/options.js';
import { checkSampling } from '../../sampling/params.js';
import { addSamplingFlags, samplingOptions } from '../sampling-flags.js';

/** What takes a setting back to what the model, or kvant, would do. */
const DEFAULT = 'default';

export class Settings {
  #sampling: SamplingOptions;
  /** Undefined: as the template has it. */
  #thinking: boolean | undefined;
  readonly #flags: readonly Option[] = addSamplingFlags(new Command()).options;

  constructor(sampling: SamplingOptions, thinking?: boolean) {
    this.#sampling = sampling;
    this.#thinking = thinking;
  }

  get sampling(): SamplingOptions {
    return this.#sampling;
  }

  get templateOptions(): { readonly enable_thinking?: boolean } {
    return this.#thinking === undefined ? {} : { enable_thinking: this.#thinking };
  }

  /** Names as `/set` takes them. */
  get names(): string[] {
    return ['thinking', ...this.#flags.filter(({ hidden }) => !hidden).map(({ long }) => long!.slice(2))];
  }

  /**
   * `temperature 0.7`, `top_k 40`, `stop "###" "END"`, `thinking off`, `temperature default`. Returns what holds from now on.
   * Errors: `unknown-parameter`, `invalid-parameter`, `conflicting-parameters`; then nothing changes.
   */
  set(name: string, text: string): string {
    const known = closestName(name, this.names);
    const flag = this.#flags.find(({ long }) => long === `--${known}`);
    if (known === undefined || known.replaceAll('-', '') !== name.toLowerCase().replaceAll(/[-_]/g, ''))
      throw new KvantError('unknown-parameter', `There is no setting \`${name}\`.`, {
        kind: 'invalid-request',
        where: name,
        fix: didYouMean(name, this.names).trim() || 'See /set for their names.',
      });
    if (text === '') throw invalid(known, `\`${known}\` wants a value.`, this.#takes(flag));
    if (flag === undefined) return this.#setThinking(text);
    const next = { ...this.#sampling } as Record<string, unknown>;
    const key = Object.keys(samplingOptions({ [flag.attributeName()]: [] } as object))[0]!;
    if (text === DEFAULT) delete next[key];
    else Object.assign(next, samplingOptions({ [flag.attributeName()]: this.#parse(flag, text) } as object));
    checkSampling(next as SamplingOptions);
    this.#sampling = next as SamplingOptions;
    return text === DEFAULT ? `${known} is the default again` : `${known} ${shown(next[key])}`;
  }

  /** Everything that was set, one line each, beside what the model takes by itself. */
  describe(defaults: SamplingOptions): string {
    const lines = Object.entries({ ...defaults, ...this.#sampling }).map(
      ([key, value]) =>
        `  ${kebab(key)} ${shown(value)}${this.#sampling[key as keyof SamplingOptions] === undefined ? ' (default)' : ''}`,
    );
    const thinking = this.#thinking === undefined ? [] : [`  thinking ${this.#thinking ? 'on' : 'off'}`];
    const names = `/set NAME VALUE, or default. Names: ${this.names.join(', ')}.`;
    return [...thinking, ...lines, names].join('\n');
  }

  #setThinking(text: string): string {
    if (!['on', 'off', DEFAULT].includes(text))
      throw invalid('thinking', `\`thinking\` is on or off, not ${text}.`, 'on, off');
    this.#thinking = text === DEFAULT ? undefined : text === 'on';
    return text === DEFAULT ? 'thinking is the default again' : `thinking ${text}`;
  }

  #parse(flag: Option, text: string): unknown {
    const name = flag.long!.slice(2);
    if (flag.argChoices !== undefined && !flag.argChoices.includes(text))
      throw invalid(name, `\`${name}\` is one of ${flag.argChoices.join(', ')}.`, this.#takes(flag));
    const parse = flag.parseArg as ((text: string, before: unknown) => unknown) | undefined;
    try {
      if (!flag.variadic) return parse === undefined ? text : parse(text, undefined);
      const texts = words(text);
      return parse === undefined ? texts : texts.reduce<unknown>((all, one) => parse(one, all), undefined);
    } catch (error) {
      if (!(error instanceof InvalidArgumentError)) throw error;
      throw invalid(name, `\`${name}\` cannot be ${text}. ${error.message}`, this.#takes(flag));
    }
  }

  #takes(flag: Option | undefined): string {
    return flag === undefined ? 'on, off' : (/[<[](.*)[>\]]/.exec(flag.flags)?.[1] ?? 'value');
  }
}

const kebab = (key: string): string => key.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

const shown = (value: unknown): string => (typeof value === 'number' ? String(value) : JSON.stringify(value));

/** Words, or texts in double quotes with escapes as in JSON. */
function words(text: string): string[] {
  return (text.match(/"(?:\\.|[^"\\])*"|\S+/g) ?? []).map((word) => {
    if (!word.startsWith('"')) return word;
    try {
      return JSON.parse(word) as string;
    } catch {
      return word;
    }
  });
}

const invalid = (name: string, message: string, takes: string): KvantError =>
  new KvantError('invalid-parameter', message, {
    kind: 'invalid-request',
    where: name,
    fix: `Write /set ${name} ${takes}, or /set ${name} ${DEFAULT}.`,
  });
