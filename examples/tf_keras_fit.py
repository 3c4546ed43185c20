# By hand, one process: python examples/tf_keras_fit.py --global-batch-size 64
# By hand, two: set TF_CONFIG for each, see tensorflow.org/guide/distributed_training
"""Classify scikit-learn's digits with tf_keras' fit under MultiWorkerMirroredStrategy."""

import argparse

import tensorflow as tf
import tf_keras
from sklearn.datasets import load_digits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--global-batch-size", type=int, default=64, help="of all workers")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=512)
    given = parser.parse_args()

    # It must come before everything else that uses TensorFlow.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    images, labels = load_digits(return_X_y=True)
    data = tf.data.Dataset.from_tensor_slices((images.astype("float32") / 16, labels))
    batches = data.shuffle(len(labels), seed=0).batch(given.global_batch_size, drop_remainder=True)
    with strategy.scope():
        model = tf_keras.Sequential(
            [
                tf_keras.layers.Input((64,)),
                tf_keras.layers.Dense(given.hidden, activation="relu"),
                tf_keras.layers.Dense(10),
            ]
        )
        model.compile(
            optimizer=tf_keras.optimizers.Adam(1e-3),
            loss=tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
        )
    model.fit(batches, epochs=given.epochs, verbose=2)


if __name__ == "__main__":
    main()
