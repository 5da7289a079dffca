import { describe, expect, it } from 'vitest';
import { type Answer, expectAnswer, readAnswer } from '../../../test/setup/read-answer.js';
import { TOOL_FORMATS, toolFormatNamed, toolFormatOf } from './formats.js';

const TOOLS = [
  {
    type: 'function',
    function: {
      name: 'get_weather',
      parameters: {
        type: 'object',
        properties: {
          city: { type: 'string' },
          days: { type: 'integer' },
          exact: { type: 'boolean' },
          note: { anyOf: [{ type: 'string' }, { type: 'null' }] },
          where: { $ref: '#/$defs/Place' },
          parts: { type: 'array', items: { type: 'string' } },
        },
        $defs: { Place: { type: 'object' } },
      },
    },
  },
  { type: 'function', function: { name: 'write', parameters: { properties: { text: { type: 'string' } } } } },
];

const rome = { name: 'get_weather', arguments: '{"city": "Rome"}' };
const romeJson = '{"name": "get_weather", "arguments": {"city": "Rome"}}';
const romeParameters = '{"name": "get_weather", "parameters": {"city": "Rome"}}';
const f = (args: string, name = 'f') => ({ name, arguments: args });

/** By format: an answer, and what it is made of. */
const CASES: Readonly<Record<string, readonly (readonly [string, Answer])[]>> = {
  llama3_json: [
    [romeParameters, [rome]],
    [`\n${romeParameters} `, [rome]],
    [`<|python_tag|>${romeParameters}`, [rome]],
    [`Let me see.\n<|python_tag|>${romeJson}`, ['Let me see.', rome]],
    [`${romeParameters}; {"name": "f", "parameters": {}}`, [rome, f('{}')]],
    [
      `${romeParameters};{"type": "function", "name": "f", "parameters": {"a": 1.50}}`,
      [rome, f('{"a": 1.50}')],
    ],
    ['{"type": "function", "function": {"name": "f", "parameters": {"a": "}"}}}', [f('{"a": "}"}')]],
    ['{"parameters": {"a": [1]}, "name": "f"}', [f('{"a": [1]}')]],
    ['{"name": "f", "parameters": "{\\"a\\": 1}"}', [f('{"a": 1}')]],
    [`${romeParameters}\nThat is all.`, [rome, '\nThat is all.']],
    ['{"name": "f", "parameters": {"a": "line\nbreak"}}', [f('{"a": "line\nbreak"}')]],
    ['{"name": "f", "parameters": {"a": "cut', [f('{"a": "cut')]],
    ['{"city": "Rome", "days": 3}', ['{"city": "Rome", "days": 3}']],
    ['{"name": "Ann"}', ['{"name": "Ann"}']],
    ['{"name": "Ann", "age": 5} is you.', ['{"name": "Ann", "age": 5} is you.']],
    ['{not json', ['{not json']],
    ['<|python_tag|>print(1)', ['<|python_tag|>print(1)']],
    [`Text, then ${romeParameters}`, [`Text, then ${romeParameters}`]],
  ],
  pythonic: [
    ['[get_weather(city="Rome")]', [rome]],
    ["[get_weather(city='Rome'), f()]", [rome, f('{}')]],
    ['<|python_start|>[get_weather(city="Rome")]<|python_end|>', [rome]],
    ['I look.\n<|python_start|>[f(a=1)]<|python_end|>\nDone.', ['I look.', f('{"a": 1}'), '\nDone.']],
    ['<function_calls>\nget_weather(city="Rome")\nf(b=2)\n</function_calls>', [rome, f('{"b": 2}')]],
    [
      "[a.b(x=True, y=None, z=[1, -2.5, (3,)], w={\"k\": 'it\\'s', 1: .5}, e=1_000)]",
      [f('{"x": true, "y": null, "z": [1, -2.5, [3]], "w": {"k": "it\'s", "1": 0.5}, "e": 1000}', 'a.b')],
    ],
    ['[f(a="tab\\t é \\u00e9 \\U0001f600 \\x41 \\q \\"")]', [f('{"a": "tab\\t é é 😀 A \\\\q \\""}')]],
    ['[f(a="""two\n"lines" here""", b=\'\')]', [f('{"a": "two\\n\\"lines\\" here", "b": ""}')]],
    ['[f(a=007, b=+5, c=1e3, d=2., e=true)]', [f('{"a": 7, "b": 5, "c": 1e3, "d": 2.0, "e": true}')]],
    ['[f(a=1,)]', [f('{"a": 1}')]],
    ['[f(a="cut', [f('{"a": "cut')]],
    ['[f(a=x + 1)]', [f('{"a": x + 1')]],
    ['[1] says so.', ['[1] says so.']],
    ['[link](https://example.org)', ['[link](https://example.org)']],
    ['[f(x) for x in y]', ['[f(x) for x in y]']],
    ['[f() for x in y]', ['[f() for x in y]']],
    ['[f(a == 1)]', ['[f(a == 1)]']],
    ['[]', ['[]']],
    ['Not [f(a=1)] at the start', ['Not [f(a=1)] at the start']],
  ],
  nemotron_json: [
    [`<TOOLCALL>[${romeJson}]</TOOLCALL>`, [rome]],
    [`\n<TOOLCALL>[${romeJson}, {"name": "f", "arguments": {}}]</TOOLCALL>\n`, [rome, f('{}')]],
    [`I look.\n<TOOLCALL>${romeJson}</TOOLCALL>`, ['I look.', rome]],
    [`<TOOLCALL>[{"name": "f", "arguments": "{\\"a\\": 1}"}]</TOOLCALL>`, [f('{"a": 1}')]],
    [`<TOOLCALL>[{"name": "f", "arguments": {"a": "</TOOLCALL>`, [f('{"a": "</TOOLCALL>')]],
    ['<TOOLCALL>[]</TOOLCALL>', ['<TOOLCALL>[]</TOOLCALL>']],
    ['<TOOLCALL>soon', ['<TOOLCALL>soon']],
  ],
  mistral: [
    [`[TOOL_CALLS][${romeJson}]`, [rome]],
    [`[TOOL_CALLS] [${romeJson}, {"name": "f", "arguments": {}}]`, [rome, f('{}')]],
    [`Let me look. [TOOL_CALLS][${romeJson}]`, ['Let me look.', rome]],
    ['[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}', [rome]],
    ['[TOOL_CALLS]get_weather{"city": "Rome"}', [rome]],
    [
      '[TOOL_CALLS]get_weather[CALL_ID]abc123XYZ[ARGS]{"city": "Rome"}[TOOL_CALLS]f[ARGS]{"a": "[TOOL_CALLS]"}',
      [{ ...rome, id: 'abc123XYZ' }, f('{"a": "[TOOL_CALLS]"}')],
    ],
    ['[TOOL_CALLS]f[ARGS]{"a": "cut', [f('{"a": "cut')]],
    ['[TOOL_CALLS][]', ['[TOOL_CALLS][]']],
    ['[TOOL_CALLS] is a token.', ['[TOOL_CALLS] is a token.']],
    [`[TOOL_CALLS][[TOOL_CALLS][${romeJson}]`, ['[TOOL_CALLS][', rome]],
    [`[TOOL_CALLS][${romeJson}, oh`, [rome, ' oh'.slice(1)]],
  ],
  cohere2: [
    [
      '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Rome"}}\n]<|END_ACTION|>',
      [rome],
    ],
    ['<|START_ACTION|>[]<|END_ACTION|>', ['<|START_ACTION|>[]<|END_ACTION|>']],
  ],
  hy_v3: [
    [
      '<tool_calls>\n<tool_call>get_weather<tool_sep>\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n</tool_calls>',
      [f('{"city": "Rome", "days": 2}', 'get_weather')],
    ],
    ['<tool_calls><tool_call>f<tool_sep></tool_call></tool_calls>', [f('{}')]],
    [
      'I look.<tool_calls>\n<tool_call>f<tool_sep>\n</tool_call>\n<tool_call>write<tool_sep>\n<arg_key>text</arg_key>\n<arg_value>5 < 6\n</arg_value>\n</tool_call>\n</tool_calls>',
      ['I look.', f('{}'), f('{"text": "5 < 6\\n"}', 'write')],
    ],
    [
      '<tool_calls>\n<tool_call>write<tool_sep>\n<arg_key>text</arg_key>\n<arg_value>cut',
      [f('{"text": "cut', 'write')],
    ],
    ['A <tool_calls> is no call.', ['A <tool_calls> is no call.']],
  ],
  hy_v3_opensource: [
    [
      '<tool_calls:opensource>\n<tool_call:opensource>get_weather<tool_sep:opensource>\n<arg_key:opensource>city</arg_key:opensource>\n<arg_value:opensource>Rome</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>',
      [rome],
    ],
    ['<tool_call:opensource>f<tool_sep:opensource></tool_call:opensource>', [f('{}')]],
    ['<tool_calls>\n<tool_call>f<tool_sep>', ['<tool_calls>\n<tool_call>f<tool_sep>']],
  ],
  muse_glimmer: [
    [
      ' to=get_weather<|message|><atem:function_calls>\n<atem:invoke name="get_weather">\n<atem:parameter name="city">Rome</atem:parameter>\n</atem:invoke>\n</atem:function_calls>',
      [rome],
    ],
    [
      ' to=f<|message|><atem:function_calls>\n<atem:invoke name="f">\n</atem:invoke>\n</atem:function_calls><|eom|><|start|>assistant to=write<|message|><atem:invoke name="write.write">\n<atem:parameter name="text"><|message, "a"</atem:parameter>\n</atem:invoke><|eom|><|start|>assistant to=user<|message|>Done.',
      [f('{}'), f('{"text": "<|message, \\"a\\""}', 'write'), 'Done.'],
    ],
    [' to=user<|message|>It rains.\n <|eot|>', ['It rains.\n ']],
    // Thoughts are asked to stay in the text, and what looks like a call in them or in what is said is none.
    [
      ' to=self<|message|><atem:invoke name="f"><|eom|><|start|>assistant to=user<|message|>Write <atem:invoke name="f">.',
      [' to=self<|message|><atem:invoke name="f"><|eom|>\n\nWrite <atem:invoke name="f">.'],
    ],
    [
      ' to=write<|message|><atem:function_calls>\n<atem:invoke name="write">\n<atem:parameter name="text">cut',
      [f('{"text": "cut', 'write')],
    ],
  ],
  harmony: [
    [
      '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}<|call|>',
      [rome],
    ],
    [
      '<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.f<|channel|>commentary json<|message|>{"a": "<|"}<|call|><|start|>assistant<|channel|>commentary to=functions.g<|message|>{}',
      ['I look.', f('{"a": "<|"}'), f('{}', 'g')],
    ],
    ['<|channel|>final<|message|>It rains.\n <|return|>', ['It rains.\n ']],
    // Thoughts are asked to stay in the text.
    [
      '<|channel|>analysis<|message|>Rome? <|end|><|start|>assistant<|channel|>final<|message|>Rain.<|start|>assistant<|channel|>final<|message|>More.',
      ['<|channel|>analysis<|message|>Rome? <|end|>\n\nRain.\n\nMore.'],
    ],
    ['<|channel|>commentary to=browser.search code<|message|><|call|>', [f('{}', 'browser.search')]],
    ['<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "cut', [f('{"a": "cut')]],
    ['<|channel|>analysis', []],
    ['assist', ['assist']],
    ['assistants to=all <|message|>', ['assistants to=all <|message|>']],
    ['<|message|> is a token.<|end|>', [' is a token.']],
  ],
  gemma4: [
    ['<|tool_call>call:get_weather{city:<|"|>Rome<|"|>}<tool_call|>', [rome]],
    [
      'I look.\n<|tool_call>call:f{a:1,b:[<|"|>x, "y"}<|"|>,true,null],c:{d:{e:-1.5e3}}}<tool_call|><|tool_call>call:g.h{}<tool_call|>',
      ['I look.', f('{"a": 1, "b": ["x, \\"y\\"}", true, null], "c": {"d": {"e": -1.5e3}}}'), f('{}', 'g.h')],
    ],
    [
      '<|tool_call>call:f{ <|"|>two words<|"|> : "it\\n" , "k": bare words , n:007 }<tool_call|>Done.',
      [f('{"two words": "it\\n", "k": "bare words", "n": "007"}'), 'Done.'],
    ],
    ['<|tool_call>call:f{a:<|"|>line\nbreak <| \\<|"|>}', [f('{"a": "line\\nbreak <| \\\\"}')]],
    ['<|tool_call>call:f{a:<|"|>cut', [f('{"a": "cut')]],
    ['<|tool_call>call:f{a:1', [f('{"a": ')]],
    ['<|tool_call>call:f{a=1}<tool_call|>', [f('{"a"=1}')]],
    ['<|tool_call> is a token, call:f{a:1} is none.', ['<|tool_call> is a token, call:f{a:1} is none.']],
    ['<|tool_call>call:{}<tool_call|>', ['<|tool_call>call:{}<tool_call|>']],
  ],
  functiongemma: [
    [
      '<start_function_call>call:get_weather{city:<escape>Rome<escape>}<end_function_call><start_function_call>call:f{a:[1,2]}<end_function_call>',
      [rome, f('{"a": [1, 2]}')],
    ],
    ['<start_function_call>call:f{a:<escape>"\\<escape>', [f('{"a": "\\"\\\\"')]],
  ],
  apertus: [
    ['<|tools_prefix|>[{"get_weather": {"city": "Rome"}}]<|tools_suffix|>', [rome]],
    [
      'I look. <|tools_prefix|>[{"get_weather": {"city": "Rome"}}, {"f": {}}]<|tools_suffix|>Done.',
      ['I look.', rome, f('{}'), 'Done.'],
    ],
    [
      '<|tools_prefix|> [ {"f" : {"a": {"b": "}]"}}} ,\n{ "f":{}} ] <|tools_suffix|>',
      [f('{"a": {"b": "}]"}}'), f('{}')],
    ],
    ['<|tools_prefix|>{"f": {"a": 1}}<|tools_suffix|>', [f('{"a": 1}')]],
    ['<|tools_prefix|>[{"f": {"a": "cut', [f('{"a": "cut')]],
    ['<|tools_prefix|>[]<|tools_suffix|>', ['<|tools_prefix|>[]<|tools_suffix|>']],
    ['<|tools_prefix|>[{"f": 1}]<|tools_suffix|>', ['<|tools_prefix|>[{"f": 1}]<|tools_suffix|>']],
    ['<|tools_prefix|>[{"f": {}}, {"g": 1}]', [f('{}'), '{"g": 1}]']],
  ],
  hunyuan: [
    [
      '<tool_calls>\n<tool_call>get_weather\n```json\n{"city": "Rome"}\n```</tool_call>\n</tool_calls>',
      [rome],
    ],
    [
      '<answer>I look.\n<tool_calls><tool_call>get_weather\n```json\n{"city": "Rome"}\n```</tool_call>\n<tool_call>f\n```json\n{}\n```\n</tool_call></tool_calls>\nDone.',
      ['<answer>I look.', rome, f('{}'), '\nDone.'],
    ],
    ['<tool_calls><tool_call>f\n{"a": "`"}</tool_call></tool_calls>', [f('{"a": "`"}')]],
    ['<tool_calls><tool_call>f\n```json\n{"a": "cut', [f('{"a": "cut')]],
    [`<tool_calls>[${romeJson}, {"name": "f", "arguments": {}}]</tool_calls>`, [rome, f('{}')]],
    [`<tool_calls>\n<tool_call>${romeJson}</tool_call>\n</tool_calls>`, [rome]],
    ['<tool_calls>nothing</tool_calls>', ['<tool_calls>nothing</tool_calls>']],
    ['<tool_call>two words</tool_call>', ['<tool_call>two words</tool_call>']],
    ['<tool_calls><tool_call>f\n```json\nno', ['<tool_calls><tool_call>f\n```json\nno']],
  ],
  glm4_0414: [
    ['get_weather\n{"city": "Rome"}', [rome]],
    ['\nget_weather\n{"city": "Rome"}\n', [rome]],
    ['get_weather\n{"city": "Rome"}write\n{"text": "a\\n"}', [rome, f('{"text": "a\\n"}', 'write')]],
    ['I look.\nget_weather\n{"city": "Rome"}\nDone.', ['I look.', rome, '\nDone.']],
    ['write\n{"text": "cut', [f('{"text": "cut', 'write')]],
    ['get_weather\nis a tool.', ['get_weather\nis a tool.']],
    ['other\n{"city": "Rome"}', ['other\n{"city": "Rome"}']],
    ['{"city": "Rome"}', ['{"city": "Rome"}']],
  ],
  seed_oss: [
    [
      'I look.\n<seed:tool_call>\n<function=get_weather>\n<parameter=city>Rome</parameter>\n</function>\n</seed:tool_call>',
      ['I look.', rome],
    ],
    [
      '<seed:tool_call>\n<function=write>\n<parameter=text>\na\n</parameter>\n</function>\n</seed:tool_call>',
      [f('{"text": "\\na\\n"}', 'write')],
    ],
  ],
  qwen3_coder: [
    ['<function=f>{"a": "</function>"}</function>', [f('{"a": "</function>"}')]],
    ['I look.\n<function=get_weather>{"city": "Rome"}</function>\nDone.', ['I look.', rome, '\nDone.']],
    [
      '<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>',
      [rome],
    ],
    [
      'I look.\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n</function>\n</tool_call>\nDone.',
      ['I look.', rome, '\nDone.'],
    ],
    [
      '<tool_call>\n<function=get_weather>\n<parameter=city>\n5\n</parameter>\n<parameter=days>\n5\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=note>\nnull\n</parameter>\n<parameter=where>\n{"a": 1}\n</parameter>\n<parameter=parts>\n[\'a\', "b"]\n</parameter>\n<parameter=other>\nfree text\n</parameter>\n</function>\n</tool_call>',
      [
        f(
          '{"city": "5", "days": 5, "exact": true, "note": null, "where": {"a": 1}, "parts": ["a", "b"], "other": "free text"}',
          'get_weather',
        ),
      ],
    ],
    [
      '<tool_call><function=write><parameter=text>\n\nif (a < b) {\n  "x\\n"\n}\n\n</parameter></function></tool_call>',
      [f('{"text": "\\nif (a < b) {\\n  \\"x\\\\n\\"\\n}\\n"}', 'write')],
    ],
    ['<tool_call>\n<function=f>\n</function>\n</tool_call>', [f('{}')]],
    [
      '<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n<parameter=days>\n2\n</function>\n</tool_call>',
      [f('{"city": "Rome", "days": 2}', 'get_weather')],
    ],
    [`<tool_call>\n${romeJson}\n</tool_call>`, [rome]],
    [
      '<tool_call>\n<function=f>\n</function>\n</tool_call>\n<tool_call>\n<function=f>\n</function>\n</tool_call>',
      [f('{}'), f('{}')],
    ],
    ['<tool_call>\n<function=write>\n<parameter=text>\nhalf a te', [f('{"text": "half a te', 'write')]],
    ['The tag <tool_call> and </tool_call>.', ['The tag <tool_call> and </tool_call>.']],
    ['<function=a b>', ['<function=a b>']],
  ],
  glm45: [
    ['<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>', [rome]],
    [
      'Hm.\n<tool_call>get_weather<arg_key>city</arg_key><arg_value>12</arg_value><arg_key>days</arg_key><arg_value>12</arg_value></tool_call>',
      ['Hm.', f('{"city": "12", "days": 12}', 'get_weather')],
    ],
    ['<tool_call>f</tool_call>', [f('{}')]],
    ['<tool_call>f\n</tool_call>\n<tool_call>f\n</tool_call>', [f('{}'), f('{}')]],
    ['<tool_call>two words</tool_call>', ['<tool_call>two words</tool_call>']],
    ['<tool_call>write<arg_key>text</arg_key><arg_value>ha', [f('{"text": "ha', 'write')]],
  ],
  minimax_m2: [
    [
      '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Rome</parameter>\n<parameter name="days">3</parameter>\n</invoke>\n<invoke name="f">\n</invoke>\n</minimax:tool_call>',
      [f('{"city": "Rome", "days": 3}', 'get_weather'), f('{}')],
    ],
  ],
  deepseek_v32: [
    [
      '<｜DSML｜function_calls>\n<｜DSML｜invoke name="f">\n<｜DSML｜parameter name="a" string="true">5</｜DSML｜parameter>\n<｜DSML｜parameter name="b" string="false">[5, 6]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
      [f('{"a": "5", "b": [5, 6]}')],
    ],
  ],
  deepseek_v3: [
    [
      '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{"city": "Rome"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
      [rome, f('{}')],
    ],
    [
      'Ok.\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "Rome"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>',
      ['Ok.', rome, f('{"a": 1}')],
    ],
    ['<｜tool▁call▁begin｜>f<｜tool▁sep｜>{"a": "cu', [f('{"a": "cu')]],
    ['<｜tool▁calls▁begin｜>nothing', ['<｜tool▁calls▁begin｜>nothing']],
  ],
  kimi_k2: [
    [
      '<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Rome"}<|tool_call_end|><|tool_calls_section_end|>',
      [{ ...rome, id: 'functions.get_weather:0' }],
    ],
  ],
  granite: [
    [`<|tool_call|>[${romeJson}]`, [rome]],
    [`<tool_call>[${romeJson}, {"name": "f", "arguments": {}}]`, [rome, f('{}')]],
    ['<|tool_call|>nothing', ['<|tool_call|>nothing']],
  ],
  phi4_mini_json: [
    [`functools[${romeJson}]`, [rome]],
    [`<|tool_call|>[${romeJson}]<|/tool_call|>`, [rome]],
    ['Python has functools.', ['Python has functools.']],
  ],
  lfm2: [
    ['<|tool_call_start|>[get_weather(city="Rome")]<|tool_call_end|>Checking.', [rome, 'Checking.']],
    ['<|tool_call_start|>[f(a=1), f(a=2)]<|tool_call_end|>', [f('{"a": 1}'), f('{"a": 2}')]],
    [`<|tool_call_start|>${romeJson}<|tool_call_end|>`, [rome]],
    ['[f(a=1)]', ['[f(a=1)]']],
  ],
  hermes: [[`<tool_call>\n${romeJson}\n</tool_call>`, [rome]]],
};

describe.each(Object.entries(CASES))('%s', (name, cases) => {
  it.each(cases)('%s', (text, expected) => expectAnswer(toolFormatNamed(name), text, expected, TOOLS));

  it('lets text pass', () => {
    const text = ' One { two [ three < four, "name": 5.\n\n';
    expectAnswer(toolFormatNamed(name), text, [text], TOOLS);
  });
});

it('has examples of every format', () => {
  expect(Object.keys(CASES).sort()).toEqual(TOOL_FORMATS.map((format) => format.name).sort());
});

describe('formats', () => {
  it('are found by what chat templates and tokenizers show', () => {
    const of = (template: string, tokens: readonly string[] = []): string =>
      toolFormatOf({ template, hasToken: (text) => tokens.includes(text) }).name;
    expect(of('')).toBe('hermes');
    expect(of('{{ "<tool_call>" }}')).toBe('hermes');
    expect(of('<tool_call>\n<function=example>')).toBe('qwen3_coder');
    expect(of('<seed:tool_call>\n<function=example>')).toBe('seed_oss');
    expect(of('<tool_call>{{ f }}<arg_key>')).toBe('glm45');
    expect(of("{{'[TOOL_CALLS] ['}}")).toBe('mistral');
    expect(of('plain', ['[TOOL_CALLS]'])).toBe('mistral');
    expect(of('<|start_header_id|> {"name": function name, "parameters": dictionary}')).toBe('llama3_json');
    expect(of('<|start_header_id|> <|python_tag|>')).toBe('llama3_json');
    expect(of('<|header_start|> <|python_start|>')).toBe('pythonic');
    expect(of('<|tool_list_start|>', ['<|tool_call_start|>'])).toBe('lfm2');
    expect(of("'<|tool|>' + tools + '<|/tool|>'")).toBe('phi4_mini_json');
    expect(of('<|tool_call|> <|start_of_role|>')).toBe('granite');
    expect(of('<tool_call> <|start_of_role|>', ['<|tool_call|>'])).toBe('hermes');
    expect(of("'<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>'")).toBe('deepseek_v3');
    expect(of('<｜DSML｜invoke')).toBe('deepseek_v32');
    expect(of('<|tool_calls_section_begin|>')).toBe('kimi_k2');
    expect(of('<|START_ACTION|>[')).toBe('cohere2');
    expect(of('<|CHATBOT_TOKEN|><|START_RESPONSE|>')).toBe('cohere2');
    expect(of('<|CHATBOT_TOKEN|>')).toBe('hermes');
    expect(of('<minimax:tool_call>')).toBe('minimax_m2');
    expect(of('<|tools_prefix|>')).toBe('apertus');
    expect(of('<|start|>assistant<|channel|>final<|message|>')).toBe('harmony');
    expect(of('', ['<|channel|>', '<|return|>'])).toBe('harmony');
    expect(of('<|message|><atem:function_calls>\\n<atem:invoke name="\' + f')).toBe('muse_glimmer');
    expect(of('<tool_calls><tool_call>{{ f }}<tool_sep><arg_key>')).toBe('hy_v3');
    expect(of("{% set H = ':opensource' %}{{ '<tool_sep{}><arg_key{}>'.format(H) }}")).toBe(
      'hy_v3_opensource',
    );
    // MiniCPM 5 cuts its own marks at <tool_sep>.
    expect(of("content.split('<tool_sep>')")).toBe('hermes');
    expect(of('use <TOOLCALL>[{"name": "a"}]</TOOLCALL>')).toBe('nemotron_json');
    expect(of('', ['<tool_sep:opensource>'])).toBe('hy_v3_opensource');
    expect(of("'<|tool_call>call:' + name")).toBe('gemma4');
    expect(of('<start_function_call>call:')).toBe('functiongemma');
    expect(of('<tool_calls><tool_call>{{ f }}\n```json')).toBe('hunyuan');
    expect(of('<|observation|>{{ content }}')).toBe('glm4_0414');
    expect(of('<tool_call> <|observation|>')).toBe('hermes');
  });

  it('are named, and one that is not known is refused with the names', () => {
    expect(toolFormatNamed('mistral').name).toBe('mistral');
    expect(() => toolFormatNamed('mistrl')).toThrow(/Did you mean `mistral`/);
    expect(() => toolFormatNamed('x'.repeat(1000))).toThrow(
      expect.objectContaining({ code: 'invalid-option', fix: expect.stringContaining('qwen3_coder') }),
    );
  });

  it('give arguments out as they come', () => {
    const texts = [
      ['mistral', '[TOOL_CALLS]write[ARGS]{"text": "'],
      ['mistral', '[TOOL_CALLS][{"name": "write", "arguments": {"text": "'],
      ['llama3_json', '{"name": "write", "parameters": {"text": "'],
      ['pythonic', '[write(text="'],
      ['qwen3_coder', '<tool_call>\n<function=write>\n<parameter=text>\n'],
      ['glm45', '<tool_call>write<arg_key>text</arg_key><arg_value>'],
      ['apertus', '<|tools_prefix|>[{"write": {"text": "'],
      ['hunyuan', '<tool_calls><tool_call>write\n```json\n{"text": "'],
      ['glm4_0414', 'write\n{"text": "'],
      ['nemotron_json', '<TOOLCALL>[{"name": "write", "arguments": {"text": "'],
      ['granite', '<|tool_call|>[{"name": "write", "arguments": {"text": "'],
      ['harmony', '<|channel|>commentary to=functions.write <|constrain|>json<|message|>{"text": "'],
      ['gemma4', '<|tool_call>call:write{text:<|"|>'],
      ['hy_v3', '<tool_calls>\n<tool_call>write<tool_sep>\n<arg_key>text</arg_key>\n<arg_value>'],
      ['muse_glimmer', ' to=write<|message|><atem:invoke name="write">\n<atem:parameter name="text">'],
      ['deepseek_v3', '<｜tool▁call▁begin｜>write<｜tool▁sep｜>{"text": "'],
    ] as const;
    for (const [name, begin] of texts) {
      const parser = toolFormatNamed(name).parser(TOOLS);
      expect(parser.push(begin)).toMatchObject([{ type: 'call', name: 'write' }]);
      expect(parser.push('one ')).toMatchObject([
        { type: 'arguments', text: expect.stringMatching(/one $/) },
      ]);
      expect(parser.push('two')).toEqual([{ type: 'arguments', text: 'two' }]);
    }
  });

  it('read hostile answers in linear time', () => {
    const texts = [
      '{'.repeat(200_000),
      '['.repeat(200_000),
      '{"name":'.repeat(30_000),
      '[f(a=['.repeat(30_000),
      '<function=f>'.repeat(10_000),
      '<function=f><parameter=a>'.repeat(10_000),
    ];
    const behind = ['', '{"a":', '[f('];
    for (const format of TOOL_FORMATS) {
      const marks = format.tokens?.slice(0, 2) ?? [];
      const own = marks.flatMap((mark) => behind.map((text) => (mark + text).repeat(5000)));
      for (const text of [...texts, ...own]) readAnswer(format, [text], TOOLS);
    }
    const nested = '['.repeat(50_000);
    for (const pieces of [[`[f(a=${nested}`], [...`[f(a=${nested}`]])
      expect(readAnswer(toolFormatNamed('pythonic'), pieces)).toEqual([
        { name: 'f', arguments: expect.stringContaining('{"a": [') },
      ]);
  });
});
