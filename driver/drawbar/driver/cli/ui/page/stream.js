// The stream of updates. It is imported first, so that the content is on its way while the other modules start.

export const source = new EventSource("updates");
