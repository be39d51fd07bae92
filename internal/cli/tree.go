package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// A tree is what is printed as JSON or YAML: object, list, string, bool, int64, uint64, float64 or nil.
type (
	object []member
	member struct {
		name  string
		value any
	}
	list []any
)

// treeOf turns a message into a tree with the names of the contract, every field present, in the contract's order.
//
// It differs from protobuf's own JSON in one thing: 64-bit numbers are numbers, not strings, as people and jq expect. None
// of ours reaches 2^53.
func treeOf(message proto.Message) any { return messageTree(message.ProtoReflect()) }

// treeOfJSON turns a JSON document into a tree, in its order; numbers stay as they are written.
func treeOfJSON(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	return jsonTree(d)
}

func jsonTree(d *json.Decoder) (any, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token {
	case json.Delim('{'):
		out := object{}
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return nil, err
			}
			value, err := jsonTree(d)
			if err != nil {
				return nil, err
			}
			out = append(out, member{fmt.Sprint(name), value})
		}
		_, err := d.Token()
		return out, err
	case json.Delim('['):
		out := list{}
		for d.More() {
			value, err := jsonTree(d)
			if err != nil {
				return nil, err
			}
			out = append(out, value)
		}
		_, err := d.Token()
		return out, err
	}
	return token, nil
}

func messageTree(m protoreflect.Message) any {
	if !m.IsValid() {
		return nil
	}
	if stamp, ok := m.Interface().(*timestamppb.Timestamp); ok {
		return stamp.AsTime().Format(time.RFC3339Nano)
	}
	fields := m.Descriptor().Fields()
	out := make(object, 0, fields.Len())
	for i := range fields.Len() {
		field := fields.Get(i)
		out = append(out, member{string(field.Name()), fieldTree(m, field)})
	}
	return out
}

func fieldTree(m protoreflect.Message, field protoreflect.FieldDescriptor) any {
	value := m.Get(field)
	switch {
	case field.HasOptionalKeyword() && !m.Has(field):
		return nil // not known is not zero
	case field.IsMap():
		out := object{}
		value.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
			out = append(out, member{key.String(), scalarTree(field.MapValue(), v)})
			return true
		})
		slices.SortFunc(out, func(a, b member) int { return strings.Compare(a.name, b.name) })
		return out
	case field.IsList():
		out := list{}
		for i := range value.List().Len() {
			out = append(out, scalarTree(field, value.List().Get(i)))
		}
		return out
	default:
		return scalarTree(field, value)
	}
}

func scalarTree(field protoreflect.FieldDescriptor, value protoreflect.Value) any {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return messageTree(value.Message())
	case protoreflect.EnumKind:
		return enumName(field.Enum(), value.Enum())
	case protoreflect.BoolKind:
		return value.Bool()
	case protoreflect.StringKind:
		return value.String()
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return value.Float()
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return value.Uint()
	case protoreflect.BytesKind:
		return string(value.Bytes())
	default:
		return value.Int()
	}
}

func enumName(enum protoreflect.EnumDescriptor, number protoreflect.EnumNumber) any {
	if value := enum.Values().ByNumber(number); value != nil {
		return string(value.Name())
	}
	return int64(number) // of a newer agent
}
