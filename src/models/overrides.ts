/**
 * Fields of config.json that a user sets by hand (`--hf-overrides`, rope flags). They replace what the file says; of a config that
 * keeps its decoder in `text_config` they replace the decoder's.
 */

import { didYouMean } from '../did-you-mean.js';
import { KvantError } from '../errors.js';
import type { JsonObject } from '../weights/folder-files.js';
import type { ConfigFields } from './config-fields.js';

const TEXT = 'text_config';
/** Of the whole model, whether it wraps a decoder or not. */
const OUTER = ['architectures', 'model_type', TEXT] as const;
/** Read from other files as well, and so not to be set here. */
const ELSEWHERE = ['eos_token_id', 'bos_token_id', 'quantization', 'quantization_config'] as const;
/** Where a config keeps its rotation, in the order in which they count. */
const ROPES = ['rope_scaling', 'rope_parameters'] as const;
/** Stand beside the rotation or within it. */
const ROPE_FIELDS = ['rope_theta', 'partial_rotary_factor'] as const;

/**
 * The config with fields replaced. An object replaces an object whole; `null` is as good as absent.
 *
 * @throws KvantError `invalid-option` for fields that cannot be set
 * @example withOverrides({ rope_theta: 1e4 }, { rope_theta: 1e6 }).rope_theta // 1e6
 */
export function withOverrides(config: JsonObject, overrides: JsonObject): JsonObject {
  for (const name of ELSEWHERE)
    if (Object.hasOwn(overrides, name))
      throw invalid(name, `"${name}" cannot be set`, 'Change it in the model’s own files.');
  const { [TEXT]: inner, ...rest } = overrides;
  if (inner !== undefined && !isObject(inner))
    throw invalid(TEXT, `"${TEXT}" is no object`, 'Give an object of fields of the decoder.');
  const text = config[TEXT];
  if (!isObject(text)) {
    if (inner !== undefined)
      throw invalid(TEXT, `config.json has no "${TEXT}"`, 'Give its fields without it.');
    return replaced(config, rest);
  }
  const all = Object.entries(rest);
  const outside = all.filter(([name]) => OUTER.some((one) => one === name) || Object.hasOwn(config, name));
  const within = all.filter(([name]) => !OUTER.some((one) => one === name));
  const decoder = replaced(text, { ...Object.fromEntries(within), ...inner });
  return { ...config, ...Object.fromEntries(outside), [TEXT]: decoder };
}

function replaced(config: JsonObject, overrides: JsonObject): JsonObject {
  const result: Record<string, unknown> = { ...config, ...overrides };
  // What is said by hand counts, wherever the file says the same.
  if (isObject(overrides.rope_parameters) && !isObject(overrides.rope_scaling)) result.rope_scaling = null;
  for (const name of ROPE_FIELDS) {
    if (!Object.hasOwn(overrides, name)) continue;
    for (const rope of ROPES) {
      const section = result[rope];
      if (isObject(section) && !Object.hasOwn(overrides, rope))
        result[rope] = withField(section, name, overrides[name]);
    }
  }
  return result;
}

/** Of a rotation that differs by type of layer, that of the layers that see everything. */
function withField(section: JsonObject, name: string, value: unknown): JsonObject {
  const full = section.full_attention;
  if (isObject(full)) return { ...section, full_attention: { ...full, [name]: value } };
  return Object.hasOwn(section, name) ? { ...section, [name]: value } : section;
}

/**
 * Refuses fields that nothing was made of: a misspelt one would change nothing in silence.
 *
 * @throws KvantError `invalid-option`, naming the field
 */
export function refuseUnread(fields: ConfigFields, overrides: JsonObject): void {
  const text = fields.readWithin(TEXT);
  for (const [name, value] of Object.entries(overrides)) {
    if (name === TEXT) continue;
    const within = [text, fields].find((one) => one !== null && isRead(one, name)) ?? null;
    if (within === null) throw unread(name, [...fields.readNames(), ...(text?.readNames() ?? [])]);
    const section = isObject(value) ? within.readWithin(name) : null;
    for (const inner of section === null ? [] : Object.keys(value as JsonObject))
      if (section?.wasRead(inner) === false) throw unread(`${name}.${inner}`, section.readNames(), inner);
  }
  const inner = overrides[TEXT];
  if (text !== null && isObject(inner)) refuseUnread(text, inner);
}

/** Whether anything was made of a field, beside the rotation or within it. */
function isRead(fields: ConfigFields, name: string): boolean {
  const isOfRope = ROPE_FIELDS.some((one) => one === name);
  return (
    fields.wasRead(name) ||
    (isOfRope && ROPES.some((rope) => fields.readWithin(rope)?.wasRead(name) === true))
  );
}

function unread(name: string, known: readonly string[], short = name): KvantError {
  return invalid(
    name,
    `"${name}" is no field that this model reads`,
    didYouMean(short, known).trim() || 'Check the spelling, or leave it out.',
  );
}

function invalid(name: string, what: string, fix: string): KvantError {
  return new KvantError('invalid-option', `hfOverrides: ${what}`, {
    kind: 'invalid-request',
    where: name,
    fix,
  });
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
