/** Sentences that explain names on the page: measurements of a run, and methods of explanation. */

/** Measurements by the last part of their names. */
export const MEASUREMENTS = {
  loss: "what training minimizes, in nats; lower is better",
  nll: "negative log-likelihood per reference token, in nats; lower is better",
  perplexity: "exponential of nll: among how many equally likely tokens the model hesitates",
  accuracy: "share of predictions that equal the reference",
  bleu: "word sequences shared with the reference, 0 to 100",
  chrF: "character sequences shared with the reference, 0 to 100",
  rouge1: "words shared with the reference, 0 to 100",
  rouge2: "pairs of words shared with the reference, 0 to 100",
  rougeL: "longest common subsequence with the reference, 0 to 100",
  rougeLsum: "as rougeL, line by line",
  em: "answers that equal a correct one, 0 to 100",
  f1: "words shared with a correct answer, 0 to 100",
  clip_share: "share of updates whose gradient exceeded trainer.gradient_clip_val and was scaled down to it",
  gradient_norm: "length of the gradient before clipping",
  lr: "learning rate",
  padding_share: "share of positions in the batches that are padding, not text",
  peak_memory_mb: "largest memory use so far, in 10^6 bytes",
  seconds_left: "estimated seconds until training ends",
  tokens: "tokens trained on so far",
  tokens_per_second: "training speed since the previous point",
  waiting_share: "share of the training time spent waiting for data",
  gpu_busy_share: "recent utilization of the GPU",
  teacher_forcing: "share of reference tokens, not the model's own, fed to the decoder",
  balance: "load of the attention experts, 1 if all are used equally",
  divergence: "how much two passes with different dropout disagree, in nats",
  entropy: "how evenly a query spreads its weight: 0 all on one key, 1 equal on all",
  end_mass: "share of the weight on the end of the text, </s>, where idle heads rest",
  dead_heads: "share of heads that put 90 % of a sentence's weight on one key, whatever the query",
  uniform_heads: "share of heads that spread their weight almost equally (entropy of 0.95 or more)",
};

/** Methods of explanation by name. */
export const METHODS = {
  attention: "cross-attention weights, mean of layers and heads",
  value_norm: "length of weight times value: what each source token adds to cross-attention's output",
  rollout: "weights multiplied through all layers",
  flow: "maximum flow from each token to the output through the weights of all layers",
  relevance: "weights of all layers, times the gradient of the output token",
  attention_x_gradient: "cross-attention weights times the size of the output token's gradient",
  alti: "each token's part in the outputs of all layers, by how close it comes to the whole",
  value_zeroing: "change of a layer's output when the token's value is set to zero",
  input_x_gradient: "embedding times gradient: first-order effect on the output token's log-odds",
  integrated_gradients: "gradients summed along a path from unknown words to the text",
  occlusion: "drop of the output token's log-probability without the token",
};
