import { bracedFormat } from './braced-call.js';

/** Gemma 4: `<|tool_call>call:f{city:<|"|>Rome<|"|>}<tool_call|>`. */
export const GEMMA4 = bracedFormat('gemma4', {
  open: '<|tool_call>',
  close: '<tool_call|>',
  quote: '<|"|>',
});

/** FunctionGemma: `<start_function_call>call:f{city:<escape>Rome<escape>}<end_function_call>`. */
export const FUNCTION_GEMMA = bracedFormat('functiongemma', {
  open: '<start_function_call>',
  close: '<end_function_call>',
  quote: '<escape>',
});
