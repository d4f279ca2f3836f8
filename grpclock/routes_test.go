package grpclock

import (
	"context"
	"sync"
	"testing"

	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// A proxy that makes descriptors while it runs gets its keys, and no leak.
func TestFieldInEndlesslyManyTypes(t *testing.T) {
	f := &field{path: "value", what: `field "value"`, names: []protoreflect.Name{"value"}}
	file := protodesc.ToFileDescriptorProto(wrapperspb.File_google_protobuf_wrappers_proto)
	var users sync.WaitGroup
	for range 2 {
		users.Go(func() {
			for range maxRoutes/2 + 50 {
				d, err := protodesc.NewFile(file, nil)
				if err != nil {
					t.Error(err)
					return
				}
				m := dynamicpb.NewMessage(d.Messages().ByName("StringValue"))
				m.Set(m.Descriptor().Fields().ByName("value"), protoreflect.ValueOfString("42"))
				if _, value, err := f.read(context.Background(), "", m); value != "42" {
					t.Errorf("got %q, %v", value, err)
					return
				}
			}
		})
	}
	users.Wait()
	if n := len(*f.known.Load()); n != maxRoutes {
		t.Fatalf("%d routes are kept", n)
	}
}
