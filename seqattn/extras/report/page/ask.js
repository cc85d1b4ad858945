/** Requests to the server of this page; errors are thrown with the server's message. */

/** Return the response to a GET, or to a POST of `content`. */
export async function asked(path, content = null, signal = null) {
  return (await sent(path, content, signal)).json();
}

/** Call `told(name, data)` for each event of a stream, and return the data of the last. */
export async function streamed(path, content, signal, told) {
  const reader = (await sent(path, { ...content, stream: true }, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  let waiting = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the server closed the stream before its end");
    const parts = (waiting + value).split("\n\n");
    waiting = parts.pop();
    for (const [name, data] of parts.map(eventOf)) {
      if (name === "error") throw new Error(data.error);
      if (name === "done") return data;
      told(name, data);
    }
  }
}

function eventOf(text) {
  const [name, data] = text.split("\n");
  return [name.slice("event: ".length), JSON.parse(data.slice("data: ".length))];
}

async function sent(path, content, signal) {
  const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(content) };
  let answer;
  try {
    answer = await fetch(path, { ...(content ? post : {}), signal });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error("the server does not respond; check that it is still running");
  }
  if (!answer.ok) throw new Error((await answer.json()).error);
  return answer;
}
