/**
 * Fields of requests to other servers (OpenAI, vLLM, llama.cpp, SGLang, Ollama, …) that kvant's routes do not act on. A value that asks
 * for what happens anyway is taken; any other is refused, with what to send instead.
 */

export interface ForeignField {
  /** Whether the value asks for nothing that does not happen anyway. */
  readonly asksNothing: (value: unknown) => boolean;
  /** What to do instead, as a sentence. */
  readonly instead: string;
}

const LEAVE = 'Leave it out.';
const STRUCTURED =
  'Send `response_format` with a JSON schema, or `structured_outputs` with `json`, `regex`, `choice` or `grammar`.';
const START = 'It is set when the server starts: see `kvant serve --help`.';

const is =
  (...values: readonly unknown[]): ForeignField['asksNothing'] =>
  (value) =>
    values.includes(value);
const never: ForeignField['asksNothing'] = () => false;
const isEmpty: ForeignField['asksNothing'] = (value) =>
  typeof value === 'object' && value !== null && Object.keys(value).length === 0;

const refused = (instead: string): ForeignField => ({ asksNothing: never, instead });
const only = (asksNothing: ForeignField['asksNothing'], instead: string = LEAVE): ForeignField => ({
  asksNothing,
  instead,
});
const renamed = (name: string): ForeignField => refused(`Write \`${name}\`.`);

const FIELDS: Readonly<Record<string, ForeignField>> = {
  // OpenAI
  audio: refused('Answers are text.'),
  function_call: only(is('none', 'auto'), 'Write `tool_choice`.'),
  functions: only(isEmpty, 'Write them as `tools`: [{"type": "function", "function": {…}}].'),
  echo: only(is(false), 'Put the prompt before the answer yourself.'),
  moderation: refused('Nothing is moderated: ask a model that does before and after.'),
  suffix: only(
    is(''),
    'Write both texts into `prompt`, with the marks that the model was trained to fill a gap by.',
  ),
  verbosity: only(is('medium'), 'Say in a message how long the answer shall be.'),
  web_search_options: refused('Give the model a tool that searches.'),

  // Structured output, in everybody's words
  structural_tag: refused('Write `structured_outputs`: {"structural_tag": …}.'),
  guided_json: refused('Write `structured_outputs`: {"json": …}.'),
  guided_regex: refused('Write `structured_outputs`: {"regex": …}.'),
  guided_choice: refused('Write `structured_outputs`: {"choice": …}.'),
  guided_grammar: refused('Write `structured_outputs`: {"grammar": …}.'),
  guided_json_object: only(is(false), 'Write `response_format`: {"type": "json_object"}.'),
  guided_structural_tag: refused('Write `structured_outputs`: {"structural_tag": …}.'),
  guided_decoding_backend: refused(LEAVE),
  guided_whitespace_pattern: refused('White space is bounded; leave it out.'),
  choice: refused('Write `structured_outputs`: {"choice": …}.'),
  json: refused('Write `structured_outputs`: {"json": …}.'),
  schema: refused(
    'Write `response_format`: {"type": "json_schema", "json_schema": {"name": …, "schema": …}}.',
  ),
  response_schema: refused(
    'Write `response_format`: {"type": "json_schema", "json_schema": {"name": …, "schema": …}}.',
  ),
  regex: refused('Write `structured_outputs`: {"regex": …}.'),
  ebnf: refused(STRUCTURED),
  format: refused('Write `response_format`.'),
  grammar_lazy: only(is(false), STRUCTURED),
  grammar_triggers: only(isEmpty, STRUCTURED),

  // vLLM and SGLang
  allowed_token_ids: refused('Use `logit_bias` or `suppress_tokens`.'),
  chat_template: refused('The model’s own template is used; `/v1/completions` takes a prompt as it stands.'),
  continue_final_message: only(is(false), 'Use `/v1/completions` with a prompt that ends within the answer.'),
  custom_logit_processor: refused(LEAVE),
  custom_params: only(isEmpty),
  documents: only(isEmpty, 'Write `chat_template_kwargs`: {"documents": […]}.'),
  ec_transfer_params: only(isEmpty),
  include_reasoning: only(is(true), 'Start the server with another --reasoning-format.'),
  include_stop_str_in_output: only(is(false), 'The answer ends before the stop string; add it yourself.'),
  kv_transfer_params: only(isEmpty),
  logprob_token_ids: only(isEmpty, 'Use `top_logprobs`.'),
  lora_path: refused('Adapters are not supported.'),
  media_io_kwargs: only(isEmpty),
  min_keep: only(is(0)),
  no_stop_trim: only(is(false), 'The answer ends before the stop string; add it yourself.'),
  prompt_embeds: refused('Send a text or token ids.'),
  repetition_detection: only(isEmpty, 'Use `repetition_penalty` or DRY.'),
  request_id: refused('Send it as the header X-Request-Id: the answer has it too, and so has the log.'),
  return_hidden_states: only(is(false)),
  return_prompt_text: only(is(false)),
  return_token_ids: only(is(false), 'Ask for `logprobs`: they have the bytes of every token.'),
  return_token_offsets: only(is(false), 'Ask for `logprobs`: those of /v1/completions have `text_offset`.'),
  return_tokens_as_token_ids: only(is(false)),
  routed_experts_prompt_start: only(is(0)),
  separate_reasoning: only(is(true), 'Start the server with --reasoning-format none.'),
  skip_special_tokens: only(is(true), 'Special tokens are left out of the text; `logprobs` show them.'),
  spaces_between_special_tokens: only(is(true)),
  stop_regex: refused('Use `stop`.'),
  stream_interval: only(is(1), 'Tokens are sent as they come, several at once to a slow reader.'),
  stream_reasoning: only(is(true)),
  truncate_prompt_tokens: refused('Shorten the prompt before it is sent.'),
  truncation_side: refused('Shorten the prompt before it is sent.'),
  vllm_xargs: only(isEmpty),
  watermarking: only(is(false)),

  // llama.cpp
  cache_prompt: only(is(true), 'Send a `cache_salt` of its own, or start the server with --no-prefix-cache.'),
  dynatemp_exponent: only(is(1)),
  id_slot: only(is(-1), 'Requests take any row that is free.'),
  lora: only(isEmpty, 'Adapters are not supported.'),
  n_cache_reuse: only(is(0)),
  n_cmpl: renamed('n'),
  n_indent: only(is(0)),
  n_keep: only(is(0), 'A context that is full ends the answer; nothing is dropped from it.'),
  n_predict: refused('Write `max_tokens`, or leave it out for as many as the context takes.'),
  n_probs: only(is(0), 'Write `logprobs` and `top_logprobs`.'),
  parse_tool_calls: only(is(true)),
  penalize_nl: only(is(false)),
  post_sampling_probs: only(is(false), 'Write `logprobs_mode`: "processed".'),
  reasoning_format: only(is('auto'), 'Start the server with --reasoning-format none.'),
  response_fields: only(isEmpty),
  return_progress: only(is(false)),
  return_tokens: only(is(false), 'Ask for `logprobs`: they have the bytes of every token.'),
  samplers: refused('The order is fixed: see docs/sampling.md.'),
  sse_ping_interval: refused('A silent stream sends a comment every 10 seconds.'),
  t_max_predict_ms: only(is(0), 'Use `max_tokens`, or close the connection.'),
  tfs_z: only(is(1)),
  thinking_forced_open: only(is(false)),
  timings_per_token: only(is(false), 'The answer ends with `kvant.timings`.'),

  // Ollama, Hugging Face and others
  do_sample: refused('`temperature`: 0 is greedy, a higher one samples.'),
  input: refused('Write `messages`, or `prompt` on /v1/completions.'),
  inputs: refused('Write `messages`, or `prompt` on /v1/completions.'),
  keep_alive: refused('The model stays loaded as long as the server runs.'),
  max_length: renamed('max_tokens'),
  max_new_tokens: renamed('max_tokens'),
  max_output_tokens: renamed('max_tokens'),
  num_ctx: refused(START),
  n_ctx: refused(START),
  num_predict: renamed('max_tokens'),
  num_return_sequences: renamed('n'),
  options: refused('Write its parameters beside the others, in OpenAI’s names.'),
  random_seed: renamed('seed'),
  stop_sequences: renamed('stop'),
  stop_words: renamed('stop'),
  system: refused('Write it as a message of the role system.'),
  think: renamed('enable_thinking'),
};

/** What is known of a field, by its name in the body; undefined for one that no server is known to have. */
export function foreignField(name: string): ForeignField | undefined {
  return Object.hasOwn(FIELDS, name) ? FIELDS[name] : undefined;
}

/** The names, for documentation. */
export const FOREIGN_FIELDS: readonly string[] = Object.keys(FIELDS);
