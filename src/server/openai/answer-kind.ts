/** What OpenAI calls chat completions, and completions. */
export type AnswerKind = 'chat' | 'text';
