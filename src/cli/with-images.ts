/** The content of a question: a text, and files of pictures before it. */
export function withImages(images: readonly string[], text: string): unknown {
  if (images.length === 0) return text;
  return [...images.map((image) => ({ type: 'image', image })), { type: 'text', text }];
}
