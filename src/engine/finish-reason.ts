/**
 * `stop`: an EOS id or a stop string. `length`: `maxTokens` or the context is used up. `cancelled`: by the caller.
 * `error`: this choice failed; its error says why.
 */
export const FINISH_REASONS = ['stop', 'length', 'cancelled', 'error'] as const;
export type FinishReason = (typeof FINISH_REASONS)[number];
