package millrace.flink;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import org.apache.flink.api.common.serialization.SerializerConfig;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeutils.SimpleTypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.TypeSerializerSnapshot;
import org.apache.flink.api.common.typeutils.base.TypeSerializerSingleton;
import org.apache.flink.core.memory.DataInputView;
import org.apache.flink.core.memory.DataOutputView;

/** A row between two subtasks: who sent it on which stream, by number, when its record was due, and its fields. */
public final class Message {
    final int component;
    final int index;
    final int stream;
    final long dueNs;
    final Object[] row;

    Message(int component, int index, int stream, long dueNs, Object[] row) {
        this.component = component;
        this.index = index;
        this.stream = stream;
        this.dueNs = dueNs;
        this.row = row;
    }

    /** Flink's description of the type. */
    static final class Type extends TypeInformation<Message> {
        private static final long serialVersionUID = 1L;

        @Override
        public boolean isBasicType() {
            return false;
        }

        @Override
        public boolean isTupleType() {
            return false;
        }

        @Override
        public int getArity() {
            return 1;
        }

        @Override
        public int getTotalFields() {
            return 1;
        }

        @Override
        public Class<Message> getTypeClass() {
            return Message.class;
        }

        @Override
        public boolean isKeyType() {
            return false;
        }

        @Override
        public Serializer createSerializer(SerializerConfig config) {
            return Serializer.ONLY;
        }

        @Override
        public String toString() {
            return "Message";
        }

        @Override
        public boolean equals(Object other) {
            return other instanceof Type;
        }

        @Override
        public int hashCode() {
            return Type.class.hashCode();
        }

        @Override
        public boolean canEqual(Object other) {
            return other instanceof Type;
        }
    }

    /** Bytes of a message: texts, whole numbers and byte arrays, each after a letter for its type. */
    public static final class Serializer extends TypeSerializerSingleton<Message> {
        static final Serializer ONLY = new Serializer();
        private static final long serialVersionUID = 1L;

        /** Flink's record of the format, for checkpoints. */
        public static final class Snapshot extends SimpleTypeSerializerSnapshot<Message> {
            /** Create the record; Flink does it by reflection, too. */
            public Snapshot() {
                super(() -> ONLY);
            }
        }

        @Override
        public boolean isImmutableType() {
            return true;
        }

        @Override
        public Message createInstance() {
            return new Message(0, 0, 0, 0, new Object[0]);
        }

        @Override
        public Message copy(Message from) {
            return from;
        }

        @Override
        public Message copy(Message from, Message reuse) {
            return from;
        }

        @Override
        public int getLength() {
            return -1;
        }

        @Override
        public void serialize(Message message, DataOutputView out) throws IOException {
            out.writeShort(message.component);
            out.writeInt(message.index);
            out.writeByte(message.stream);
            out.writeLong(message.dueNs);
            out.writeByte(message.row.length);
            for (Object field : message.row) {
                if (field instanceof String text) {
                    out.writeByte('s');
                    out(text.getBytes(StandardCharsets.UTF_8), out);
                } else if (field instanceof Long number) {
                    out.writeByte('l');
                    out.writeLong(number);
                } else if (field instanceof byte[] bytes) {
                    out.writeByte('b');
                    out(bytes, out);
                } else {
                    throw new IOException("a field is neither text, whole number nor bytes: " + field);
                }
            }
        }

        private static void out(byte[] bytes, DataOutputView out) throws IOException {
            out.writeInt(bytes.length);
            out.write(bytes);
        }

        @Override
        public Message deserialize(DataInputView in) throws IOException {
            int component = in.readShort();
            int index = in.readInt();
            int stream = in.readByte();
            long dueNs = in.readLong();
            Object[] row = new Object[in.readByte()];
            for (int at = 0; at < row.length; at++) {
                byte kind = in.readByte();
                if (kind == 'l') {
                    row[at] = in.readLong();
                } else {
                    byte[] bytes = new byte[in.readInt()];
                    in.readFully(bytes);
                    row[at] = kind == 's' ? new String(bytes, StandardCharsets.UTF_8) : bytes;
                }
            }
            return new Message(component, index, stream, dueNs, row);
        }

        @Override
        public Message deserialize(Message reuse, DataInputView in) throws IOException {
            return deserialize(in);
        }

        @Override
        public void copy(DataInputView in, DataOutputView out) throws IOException {
            serialize(deserialize(in), out);
        }

        @Override
        public TypeSerializerSnapshot<Message> snapshotConfiguration() {
            return new Snapshot();
        }
    }

    /** Return the key of a row in a fields grouping. */
    static String key(Object[] row, int[] fields) {
        if (fields.length == 1) {
            return String.valueOf(row[fields[0]]);
        }
        return String.join("\0", Arrays.stream(fields).mapToObj(at -> String.valueOf(row[at])).toList());
    }
}
