import { describe, expect, it } from 'vitest';
import { PythonTemplate } from './jinja/python-template.js';
import { TemplateReads } from './template-reads.js';

function readsOf(source: string): TemplateReads {
  const template = new PythonTemplate(source);
  return new TemplateReads(source, (variables) => {
    try {
      return template.render({ add_generation_prompt: true, ...variables }, new Date(0));
    } catch {
      return undefined;
    }
  });
}

const each = (inner: string): string => `{% for m in messages %}${inner}{% endfor %}`;

describe('what a template reads', () => {
  it('of the fields of messages', () => {
    const plain = readsOf(each('{{ m.role }}: {{ m.content }}'));
    for (const name of ['refusal', 'annotations', 'audio', 'name', 'reasoning_content', 'on', 'cont', ''])
      expect(plain.field(name), name).toBe(false);
    expect(plain.field('content')).toBe(true);
    for (const name of ['', '.*', '(', 'x'.repeat(1_000_000)])
      expect(readsOf('word').field(name)).toBe(false);
    for (const source of ["{{ m['refusal'] }}", "{{ m.get('refusal') }}", '{% if m.refusal %}x{% endif %}'])
      expect(readsOf(each(`{{ m.content }}${source}`)).field('refusal')).toBe(true);
    // All of a message is all of its fields.
    expect(readsOf(each('{{ m | tojson }}')).field('annotations')).toBe(true);
  });

  it('of names, which tools have as well', () => {
    const tools = readsOf(
      `${each('{{ m.content }}')}{% for t in tools or [] %}{{ t.function.name }}{% endfor %}`,
    );
    expect(tools.field('name')).toBe(false);
    expect(readsOf(each('{{ m.name or m.role }}: {{ m.content }}')).field('name')).toBe(true);
  });

  it('of variables', () => {
    const reads = readsOf('{% if enable_thinking %}<think>{% endif %}');
    expect(reads.variable('enable_thinking')).toBe(true);
    expect(reads.variable('thinking')).toBe(false);
    expect(reads.variable('enable')).toBe(false);
  });

  it('of tools', () => {
    const body = each('{{ m.content }}');
    expect(readsOf(body).tools()).toBe(false);
    expect(readsOf(`${body}{{ tools | tojson }}`).tools()).toBe(true);
    expect(readsOf(`{% if tools %}{{ tools[0].function.name }}{% endif %}${body}`).tools()).toBe(true);
    // With a system message only.
    const system = "{% if messages[0].role == 'system' and tools %}{{ tools | tojson }}{% endif %}";
    expect(readsOf(`${system}${body}`).tools()).toBe(true);
    // The word alone shows nothing.
    expect(readsOf(`{# no tools #}${body}`).tools()).toBe(false);
    // A template that refuses the tool that it is tried with may take others.
    const picky = "{% if tools and tools[0].function.name != 'f' %}{{ raise_exception('no') }}{% endif %}";
    expect(readsOf(`${picky}${body}`).tools()).toBe(true);
    // Shown if another variable says so.
    const asked = readsOf(`{% if show and tools %}{{ tools | tojson }}{% endif %}${body}`);
    expect(asked.tools()).toBe(false);
    expect(asked.tools({ show: true })).toBe(true);
  });
});
