export const POOLINGS = ['last', 'mean', 'cls'] as const;
/** How the hidden states of a text become one: that of its last token, the mean of all, or that of its first token. */
export type Pooling = (typeof POOLINGS)[number];
