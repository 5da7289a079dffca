/** One schema document: where its schemas stand, and what `$ref`s in it lead to. */

import { shown } from '../../printable.js';
import { MAX_DEPTH, tooLarge } from '../limits.js';
import { mayBeRewritten, memberOf, rewrite } from './older-drafts.js';
import { invalidSchema, isSchema, type SchemaNode, type SchemaObject, unsupported } from './schema-nodes.js';

/** Keywords whose value is a schema, a list of them, or schemas by name. */
const SINGLE = [
  'items',
  'additionalProperties',
  'contains',
  'propertyNames',
  'not',
  'if',
  'then',
  'else',
  'unevaluatedItems',
  'unevaluatedProperties',
];
const LISTS = ['allOf', 'anyOf', 'oneOf', 'prefixItems'];
const MAPS = ['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas', 'dependencies'];

const OLDER = /draft-0[34]/;

/** What a document without an `$id` is called. */
const NAMELESS = 'schema:/';

export class SchemaDocument {
  readonly root: SchemaNode;
  /** By address without a fragment: the schema that has it as `$id`. */
  readonly #resources = new Map<string, SchemaObject | boolean>();
  /** By address and `$anchor`. */
  readonly #anchors = new Map<string, SchemaObject>();
  /** By schema: the address that its references begin from. */
  readonly #bases = new Map<unknown, string>();

  /** Errors: `invalid-schema`, `grammar-too-large`. */
  constructor(root: unknown) {
    if (!isSchema(root)) throw invalidSchema('#', 'is no schema: an object, true or false');
    refuseDepth(root);
    const own = mayBeRewritten(root);
    this.root = { schema: own, pointer: '#' };
    this.#resources.set(NAMELESS, own);
    this.#index(own, NAMELESS);
  }

  /** Errors: `unsupported-schema` for what is not in this document, `invalid-schema` for a pointer to nothing. */
  resolve({ schema, pointer }: SchemaNode): SchemaNode {
    const ref = (schema as SchemaObject).$ref as string;
    const wrong = (what: string): Error =>
      invalidSchema(`${pointer}/$ref`, `points to "${shown(ref)}", ${what}`);
    const [address, fragment] = addressOf(ref, this.#bases.get(schema) ?? NAMELESS);
    const resource = this.#resources.get(address);
    if (resource === undefined)
      throw unsupported(pointer, '$ref', 'Put the schema under `$defs`, and write "#/$defs/NAME".');
    if (fragment !== '' && !fragment.startsWith('/')) {
      const found = this.#anchors.get(`${address}#${fragment}`);
      if (found === undefined) throw wrong('where nothing is');
      return { schema: found, pointer: ref };
    }
    let value: unknown = resource;
    let base = address;
    const parts = fragment.split('/').map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~'));
    for (let i = 1; i < parts.length; i++) {
      const inner = memberOf(value, parts[i]!, parts[i + 1]);
      if (inner === undefined) throw wrong('where nothing is');
      value = inner;
      base = this.#bases.get(value) ?? base;
    }
    if (!isSchema(value)) throw wrong('which is no schema');
    // What stands where no schema is expected has not been seen yet.
    if (!this.#bases.has(value)) this.#index(value, base);
    return { schema: value, pointer: ref };
  }

  #index(root: SchemaObject | boolean, address: string): void {
    const { schema: whole } = this.root;
    const older = typeof whole === 'object' && typeof whole.$schema === 'string' && OLDER.test(whole.$schema);
    const todo: { readonly schema: unknown; readonly base: string }[] = [{ schema: root, base: address }];
    for (let next = todo.pop(); next !== undefined; next = todo.pop()) {
      const { schema } = next;
      if (!isSchema(schema) || typeof schema === 'boolean' || this.#bases.has(schema)) continue;
      rewrite(schema);
      let { base } = next;
      const { $id = older ? schema.id : undefined, $anchor } = schema;
      // Drafts up to 4 write `id`, and "#name" for an anchor.
      const isAnchor = older && typeof $id === 'string' && $id.startsWith('#');
      const [id, anchor] = isAnchor ? [undefined, ($id as string).slice(1)] : [$id, $anchor];
      if (typeof id === 'string') {
        [base] = addressOf(id, base);
        if (!this.#resources.has(base)) this.#resources.set(base, schema);
      }
      this.#bases.set(schema, base);
      if (typeof anchor === 'string') this.#anchors.set(`${base}#${anchor}`, schema);
      const add = (value: unknown): void => {
        todo.push({ schema: value, base });
      };
      for (const name of SINGLE) add(schema[name]);
      for (const name of LISTS) if (Array.isArray(schema[name])) for (const one of schema[name]) add(one);
      for (const name of MAPS)
        if (isSchema(schema[name])) for (const one of Object.values(schema[name])) add(one);
    }
  }
}

/** Where a reference leads from a base: the address of a document, and the fragment in it, decoded. */
function addressOf(ref: string, base: string): [address: string, fragment: string] {
  const hash = ref.indexOf('#');
  const before = hash < 0 ? ref : ref.slice(0, hash);
  const fragment = hash < 0 ? '' : ref.slice(hash + 1);
  let address = base;
  if (before !== '')
    try {
      address = new URL(before, base).href;
    } catch {
      // No address: it is nowhere.
      address = before;
    }
  return [address, decoded(fragment)];
}

function decoded(fragment: string): string {
  try {
    return decodeURIComponent(fragment);
  } catch {
    // A percent sign that stands for itself.
    return fragment;
  }
}

function refuseDepth(root: unknown): void {
  const todo: { value: unknown; depth: number }[] = [{ value: root, depth: 0 }];
  for (let at = todo.pop(); at !== undefined; at = todo.pop()) {
    if (typeof at.value !== 'object' || at.value === null) continue;
    // A schema in a schema is two objects down.
    if (at.depth > 2 * MAX_DEPTH) throw tooLarge(`nests schemas more than ${MAX_DEPTH} deep`);
    for (const value of Object.values(at.value)) todo.push({ value, depth: at.depth + 1 });
  }
}
