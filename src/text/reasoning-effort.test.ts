import { describe, expect, it } from 'vitest';
import { effortVariables, type ReasoningEffort } from './reasoning-effort.js';

const QWEN = '{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>{% endif %}';
const HARMONY =
  '{%- if reasoning_effort is not defined %}{% set reasoning_effort = "medium" %}{% endif %}{{ message.thinking }}';
const DEEPSEEK = "{% if not thinking %}</think>{% endif %}{{ message['thinking'] }}";
const MISTRAL = "{% if reasoning_effort not in ['none', 'high'] %}{{ raise_exception('no') }}{% endif %}";

const tell = (effort: ReasoningEffort, source: string, given = {}, thinks = source.includes('think>')) => {
  try {
    return effortVariables(effort, { source, thinks }, given);
  } catch (error) {
    return (error as { code: string }).code;
  }
};

describe('a reasoning effort', () => {
  it('is told by what the template reads', () => {
    expect(tell('none', QWEN)).toEqual({ enable_thinking: false });
    expect(tell('high', QWEN, { other: 1 })).toEqual({ enable_thinking: true, other: 1 });
    expect(tell('low', HARMONY)).toEqual({ reasoning_effort: 'low' });
    expect(tell('none', DEEPSEEK)).toEqual({ thinking: false });
    expect(tell('none', MISTRAL)).toEqual({ reasoning_effort: 'none' });
  });

  it('is refused where it has no effect, or something else is said', () => {
    expect(tell('high', '<think>')).toBe('unsupported-parameter');
    expect(tell('none', '<think>')).toBe('unsupported-parameter');
    expect(tell('none', HARMONY)).toBe('unsupported-parameter');
    expect(tell('none', '{{ messages }}')).toEqual({});
    expect(tell('low', '{{ messages }}')).toBe('unsupported-parameter');
    expect(tell('low', QWEN, { enable_thinking: false })).toBe('conflicting-parameters');
  });
});
