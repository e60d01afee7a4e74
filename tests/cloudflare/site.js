// A site's own Worker, in JavaScript: it binds the scheduler of the Worker under test, and makes one call for a test.
export default {
  async fetch(request, env) {
    const { method, values } = await request.json();
    const scheduler = env.SCHEDULER.get(env.SCHEDULER.idFromName("v1"));
    try {
      const result = await scheduler[method](...values);
      return Response.json({ result, plain: Object.getPrototypeOf(result) === Object.prototype });
    } catch (error) {
      const { name, message, code, retryable } = error;
      return Response.json({ thrown: { isError: error instanceof Error, name, message, code, retryable } });
    }
  },
};
