/** Tokens that end an answer whatever the files of a model name: no model goes on behind them with what it was asked. */

const ENDS = [
  '<|endoftext|>',
  '<|end_of_text|>',
  '<|im_end|>',
  // Llama 3.
  '<|eot_id|>',
  '<|eom_id|>',
  // Phi. In gpt-oss and its like it ends a message alone.
  '<|end|>',
  // gpt-oss.
  '<|return|>',
  '<|call|>',
  // Gemma; the last stands behind the calls of Gemma 4.
  '<eos>',
  '<end_of_turn>',
  '<turn|>',
  '<|tool_response>',
  // Kimi K2.
  '[EOT]',
  '[EOS]',
  // DeepSeek.
  '<｜end▁of▁sentence｜>',
  // MiniMax.
  '[e~[',
  '<end_of_utterance>',
];

const OF_MESSAGE = '<|end|>';
const FRAMES = ['<|return|>', '<|flush|>', '<|channel|>'];

/**
 * The ids of such tokens. Only those count that the tokenizer calls special: the same text as a word ends nothing.
 *
 * @param special the id of a special token by its text
 */
export function answerEnds(special: (token: string) => number | undefined): number[] {
  const framed = FRAMES.some((token) => special(token) !== undefined);
  return ENDS.flatMap((token) => (framed && token === OF_MESSAGE ? [] : (special(token) ?? [])));
}
