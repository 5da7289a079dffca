/** How much a model shall think, in the words of requests, as variables that chat templates read. */
import { KvantError } from '../errors.js';
import { shown } from '../printable.js';

export const REASONING_EFFORTS = ['none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'] as const;
export type ReasoningEffort = (typeof REASONING_EFFORTS)[number];

/** What is known of a template. */
export interface EffortClues {
  readonly source: string;
  /** Whether it knows of thoughts. */
  readonly thinks: boolean;
}

/** A variable of that name, and no field of a message. */
const reads = (source: string, name: string): boolean =>
  new RegExp(`(?<![.\\w'"])${name}(?![\\w'"])`).test(source);

/**
 * Variables for an effort. `none` switches thoughts off; any other switches them on, and is said to templates that read it.
 *
 * @param given variables of the request, which may not say otherwise
 * Errors: `unsupported-parameter` for an effort that the template reads nothing of, `conflicting-parameters`; where `reasoningEffort`.
 */
export function effortVariables(
  effort: ReasoningEffort,
  { source, thinks }: EffortClues,
  given: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  const switches = ['enable_thinking', 'thinking'].filter((name) => reads(source, name));
  const made: Record<string, unknown> = {};
  const levels = reads(source, 'reasoning_effort');
  if (levels && (effort !== 'none' || /['"]none['"]/.test(source))) made.reasoning_effort = effort;
  if (switches[0] !== undefined) made[switches[0]] = effort !== 'none';
  const nothing = Object.keys(made).length === 0;
  // A model that does not think at all does what is asked.
  if (nothing && !(effort === 'none' && !thinks && !levels))
    throw new KvantError(
      'unsupported-parameter',
      `The chat template reads nothing that a reasoning effort of "${shown(effort)}" could be told by.`,
      {
        kind: 'unsupported',
        where: 'reasoningEffort',
        fix: levels
          ? 'It reads `reasoning_effort`: send "low", "medium" or "high".'
          : 'Leave it out. A `thinkingBudget` bounds the thoughts of any model that has them.',
      },
    );
  for (const [name, value] of Object.entries(made))
    if (given[name] !== undefined && given[name] !== value)
      throw new KvantError(
        'conflicting-parameters',
        `\`reasoningEffort\` and the template variable \`${name}\` say different things.`,
        { kind: 'invalid-request', where: 'reasoningEffort', fix: 'Send one of them.' },
      );
  return { ...given, ...made };
}
