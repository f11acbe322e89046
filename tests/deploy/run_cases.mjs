// Runs a folder's cases in onnxruntime-node or onnxruntime-web, in node and in a browser page alike. What comes out
// is sent as it is, little-endian in base64: compare.py does all comparing, for every runtime the same.

// Float16Array is in Chromium, not in node 20; onnxruntime wants it where it exists.
const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  float16: typeof Float16Array === 'undefined' ? Uint16Array : Float16Array,
};

function base64(array) {
  let text = '';
  for (const byte of new Uint8Array(array.buffer, array.byteOffset, array.byteLength)) text += String.fromCharCode(byte);
  return btoa(text);
}

function numbers(dtype, stored) {
  return new ARRAYS[dtype](stored.buffer.slice(stored.byteOffset, stored.byteOffset + stored.byteLength));
}

// place: { ort, bytes(name), open(case, options), options(case, level), row(case, level), kept(session) }, the last
// three as far as needed: further session options, further fields of the row, and the operators that ran.
export async function runCases(place, cases) {
  const rows = [];
  for (const item of cases) {
    for (const level of item.levels) {
      const row = { case: item.id, level, stage: 'load', error: null, outputs: [], ...place.row?.(item, level) };
      let session;
      try {
        session = await place.open(item, {
          graphOptimizationLevel: level, intraOpNumThreads: 1, logSeverityLevel: 4, ...place.options?.(item, level),
        });
        row.stage = 'run';
        for (const batch of item.batches) {
          const x = new place.ort.Tensor(item.dtype, numbers(item.dtype, await place.bytes(batch.x)), batch.shape);
          const y = (await session.run({ [item.input]: x }))[session.outputNames[0]];
          row.outputs.push({ shape: y.dims, dtype: y.type, data: base64(y.data) });
        }
        if (place.kept) row.operators = place.kept(session);
      } catch (error) {
        row.error = String(error?.message ?? error).slice(0, 600);
      } finally {
        await session?.release();
      }
      rows.push(row);
    }
  }
  return rows;
}

// onnxruntime-web can't save the optimised model where anyone could read it, but its profile, which it prints, names
// the operator of each kernel that ran. printed(): the text it printed since the last call.
export function webPlace(ort, bytes, printed) {
  ort.env.wasm.numThreads = 1;
  return {
    ort,
    bytes,
    options: () => ({ executionProviders: ['wasm'], enableProfiling: true }),
    async open(item, options) {
      const externalData = await Promise.all(
        (item.data ?? []).map(async (name) => ({ path: name, data: new Uint8Array(await bytes(name)) })),
      );
      return ort.InferenceSession.create(new Uint8Array(await bytes(item.model)), { ...options, externalData });
    },
    kept(session) {
      printed();
      session.endProfiling();
      const lines = printed().split('\n');
      const end = lines.findIndex((line) => line.includes('"model_run"')); // of the first batch
      return lines.slice(0, end).flatMap((line) => line.match(/"op_name" : "(\w+)"/)?.[1] ?? []);
    },
  };
}
