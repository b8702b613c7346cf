"""What Keras 3 cannot do: ``fit`` under MultiWorkerMirroredStrategy."""

import tensorflow as tf
from sklearn.datasets import load_digits

strategy = tf.distribute.MultiWorkerMirroredStrategy()
with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((64,)), tf.keras.layers.Dense(10)])
    model.compile(loss="sparse_categorical_crossentropy", optimizer="sgd")
images, labels = load_digits(return_X_y=True)
model.fit(tf.data.Dataset.from_tensor_slices((images, labels)).batch(64), verbose=0)
