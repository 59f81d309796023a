package faults

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/test/campaign/specs"
)

// dimension is a part of a spec that a simulated user varies. The first choice is the default.
type dimension struct {
	name string
	// immutable is true for a part that cannot be changed after the creation.
	immutable bool
	choices   []choice
}

type choice struct {
	name string
	edit func(client.Object)
}

// dimensions lists the dimensions of each kind. Each has few choices, so that many simulations end in specs whose
// undisturbed state is known already. All combinations are valid.
var dimensions = map[string][]dimension{
	AppService: {
		dimensionOf("image", app("1", nil), app("2", func(s *v1beta1.AppServiceSpec) { s.Image = "registry.test/shop:2" })),
		dimensionOf("port", app("8080", nil), app("9090", func(s *v1beta1.AppServiceSpec) { s.Port = 9090 })),
		dimensionOf("pods", app("2", nil), app("4", func(s *v1beta1.AppServiceSpec) { s.Replicas = ptr.To[int32](4) }),
			app("unset", func(s *v1beta1.AppServiceSpec) { s.Replicas = nil }), app("3-5", withAutoscaling),
			app("2-3", func(s *v1beta1.AppServiceSpec) {
				withAutoscaling(s)
				s.Autoscaling.MinReplicas, s.Autoscaling.MaxReplicas = 2, 3
			})),
		dimensionOf("config", app("none", nil), app("hello", func(s *v1beta1.AppServiceSpec) { s.Config = map[string]string{"GREETING": "hello"} }),
			app("file", func(s *v1beta1.AppServiceSpec) {
				s.Config, s.ConfigMountPath = map[string]string{"greeting": "bye", "more": "yes"}, "/etc/shop"
			})),
		dimensionOf("budget", app("none", nil),
			app("max1", func(s *v1beta1.AppServiceSpec) {
				s.DisruptionBudget = &v1beta1.DisruptionBudget{MaxUnavailable: ptr.To(intstr.FromInt32(1))}
			}),
			app("min1", func(s *v1beta1.AppServiceSpec) {
				s.DisruptionBudget = &v1beta1.DisruptionBudget{MinAvailable: ptr.To(intstr.FromInt32(1))}
			})),
		dimensionOf("ingress", app("none", nil),
			app("shop", func(s *v1beta1.AppServiceSpec) {
				s.Ingress = &v1beta1.Ingress{Host: "shop.example.com", IngressClassName: ptr.To(IngressClass)}
			}),
			app("tls", func(s *v1beta1.AppServiceSpec) {
				s.Ingress = &v1beta1.Ingress{
					Host: "other.example.com", IngressClassName: ptr.To(IngressClass), TLSSecretName: certificateName, Annotations: map[string]string{"example.com/limit": "1"},
				}
			})),
		dimensionOf("rest", app("plain", nil), app("recreate", func(s *v1beta1.AppServiceSpec) {
			s.Strategy = v1beta1.StrategyRecreate
			s.Env = []corev1.EnvVar{{Name: "MODE", Value: "fast"}}
		}), app("probes", func(s *v1beta1.AppServiceSpec) {
			s.Probes = &v1beta1.AppServiceProbes{Readiness: &v1beta1.AppServiceProbe{Path: "/ready", PeriodSeconds: 10, TimeoutSeconds: 1, FailureThreshold: 3}}
			s.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
			s.NodeSelector, s.ServiceAccountName = map[string]string{"disk": "fast"}, accountName
			s.ImagePullSecrets, s.ProgressDeadlineSeconds = []corev1.LocalObjectReference{{Name: pullSecret}}, 300
			s.ImagePullPolicy = corev1.PullAlways
		}), app("security", securePods)),
		dimensionOf(suspend, app(no, nil), app(yes, func(s *v1beta1.AppServiceSpec) { s.Suspend = true })),
		dimensionOf(reportDrift, app(no, nil), app(yes, func(s *v1beta1.AppServiceSpec) { s.DriftPolicy = v1beta1.DriftReport })),
	},
	MCPServer: {
		immutableDimension("transport", server("http", nil), server("sse", func(s *v1beta1.MCPServerSpec) { s.Transport = v1beta1.TransportSSE }), server("stdio", withStdio)),
		dimensionOf("image", server("1", nil), server("2", func(s *v1beta1.MCPServerSpec) { s.Image, s.Args = "registry.test/tools:2", []string{"--fast"} })),
		dimensionOf("port", server("8080", nil), server("9090", func(s *v1beta1.MCPServerSpec) { s.Port = 9090 })),
		dimensionOf("pods", server("unset", nil), server("3", func(s *v1beta1.MCPServerSpec) { s.Replicas = ptr.To[int32](3) }),
			server("2-4", func(s *v1beta1.MCPServerSpec) {
				s.Autoscaling = &v1beta1.MCPServerAutoscaling{MinReplicas: 2, MaxReplicas: 4, TargetCPUUtilizationPercent: ptr.To[int32](80)}
			})),
		dimensionOf("files", server("none", nil),
			server("small", func(s *v1beta1.MCPServerSpec) {
				s.Files = []v1beta1.MCPServerFile{{Path: "/etc/tools/config.json", Content: "{}"}}
			}),
			server("large", func(s *v1beta1.MCPServerSpec) {
				s.Files = []v1beta1.MCPServerFile{{Path: "/etc/tools/config.json", Content: `{"more":true}`}, {Path: "/etc/tools/more", Content: "yes"}}
			})),
		dimensionOf("inside", server("none", nil), server("all", func(s *v1beta1.MCPServerSpec) {
			all := v1beta1.MCPServerSpec{}
			AllServerOptions(&all)
			s.ServiceAccount, s.DisruptionBudget, s.NetworkPolicy = all.ServiceAccount, all.DisruptionBudget, all.NetworkPolicy
		}), server("account", func(s *v1beta1.MCPServerSpec) { s.ServiceAccount = &v1beta1.MCPServerServiceAccount{Create: true} })),
		dimensionOf("ingress", server("none", nil), server("tools", func(s *v1beta1.MCPServerSpec) {
			s.Ingress = &v1beta1.Ingress{Host: "tools.example.com", IngressClassName: ptr.To(IngressClass)}
		})),
		dimensionOf("secret", server("none", nil), server("read", withSecret)),
		dimensionOf("authorization", server("none", nil), server("tokens", withAuthorization)),
		dimensionOf("contract", server("observed", nil), server(no, func(s *v1beta1.MCPServerSpec) {
			s.Contract = &v1beta1.MCPServerContract{Policy: v1beta1.ContractDisabled}
		})),
		dimensionOf("limits", server("none", nil), server("all", withLimits)),
		dimensionOf("sessions", server("own", nil), server("all", withSessions)),
		dimensionOf("telemetry", server("none", nil), server("all", withTelemetry)),
		dimensionOf("rest", server("plain", nil), server("pod", changeServerPod), server("traffic", func(s *v1beta1.MCPServerSpec) {
			s.Path = "/other"
			if s.Transport == v1beta1.TransportSSE {
				s.Path = ssePath + s.Path
			}
			s.SessionAffinity, s.SessionAffinityTimeoutSeconds = v1beta1.SessionAffinityClientIP, 60
			s.Strategy, s.DrainSeconds, s.TerminationGracePeriodSeconds = v1beta1.StrategyRecreate, ptr.To[int64](5), 60
		})),
		dimensionOf("probe", server("on", nil), server("off", func(s *v1beta1.MCPServerSpec) { s.Protocol.Probe = v1beta1.ProbeDisabled })),
		dimensionOf(suspend, server(no, nil), server(yes, func(s *v1beta1.MCPServerSpec) { s.Suspend = true })),
		dimensionOf(reportDrift, server(no, nil), server(yes, func(s *v1beta1.MCPServerSpec) { s.DriftPolicy = v1beta1.DriftReport })),
	},
	SecureStorage: {
		immutableDimension("account", storage("own", nil), storage("adopted", withAdoption(adopted))),
		dimensionOf("vault", storage("first", nil), storage("other", withVault(otherVault)), storage("policies", withAccessPolicy)),
		dimensionOf("sku", storage("LRS", nil), storage("GRS", func(s *v1beta1.SecureStorageSpec) { s.SKU = v1beta1.SKUStandardGRS })),
		dimensionOf("tags", storage("none", nil), storage("team", func(s *v1beta1.SecureStorageSpec) { s.Tags = map[string]string{"team": "storage"} }),
			storage("more", func(s *v1beta1.SecureStorageSpec) { s.Tags = map[string]string{"team": "other", "cost": "1"} })),
		dimensionOf("key", storage("latest", nil), storage("pinned", func(s *v1beta1.SecureStorageSpec) { s.Key.Version = pinned })),
		dimensionOf("deletion", storage("Delete", nil), storage("Retain", withRetain)),
		dimensionOf("loss", storage("Recreate", nil), storage("Stall", func(s *v1beta1.SecureStorageSpec) { s.AccountLossPolicy = v1beta1.LossStall })),
		dimensionOf("export", storage("none", nil), storage("map", func(s *v1beta1.SecureStorageSpec) { s.Export = &v1beta1.SecureStorageExport{} }),
			storage("keys", withExport)),
		dimensionOf(suspend, storage(no, nil), storage(yes, func(s *v1beta1.SecureStorageSpec) { s.Suspend = true })),
		dimensionOf(observed, storage(no, nil), storage(yes, func(s *v1beta1.SecureStorageSpec) {
			s.ManagementPolicy = v1beta1.ManagementObserve
			if s.Export != nil {
				s.Export = &v1beta1.SecureStorageExport{} // keys are refused
			}
		})),
	},
}

// Each option of an AppService that none of the dimensions above varies is a dimension of its own.
func init() {
	varied, err := VariedFields(AppService)
	if err != nil {
		panic(err) // a dimension is wrong
	}
	for _, field := range specs.Options() {
		if !varied[field] {
			dimensions[AppService] = append(dimensions[AppService], dimensionOf(field, app(no, nil),
				app(yes, func(s *v1beta1.AppServiceSpec) { specs.SetOption(s, field) })))
		}
	}
}

// These dimensions pause the reconciliation. The final spec of a simulation has them off.
const (
	suspend     = "suspended"
	reportDrift = "drift-reported"
	observed    = "observed"
	no, yes     = "no", "yes"
)

// These values are placeholders for an account to adopt and for the current key version.
const (
	adopted = "adopted"
	pinned  = "pinned"
)

func dimensionOf(name string, choices ...choice) dimension {
	return dimension{name: name, choices: choices}
}

func immutableDimension(name string, choices ...choice) dimension {
	return dimension{name: name, immutable: true, choices: choices}
}

// choiceOf returns a choice that applies an edit, if any, to the spec of a kind.
func choiceOf[T client.Object, S any](name string, edit func(*S), spec func(T) *S) choice {
	return choice{name, func(object client.Object) {
		if of, ok := object.(T); ok && edit != nil {
			edit(spec(of))
		}
	}}
}

func app(name string, edit AppEdit) choice {
	return choiceOf(name, edit, func(a *v1beta1.AppService) *v1beta1.AppServiceSpec { return &a.Spec })
}

func server(name string, edit ServerEdit) choice {
	return choiceOf(name, edit, func(m *v1beta1.MCPServer) *v1beta1.MCPServerSpec { return &m.Spec })
}

func storage(name string, edit StorageEdit) choice {
	return choiceOf(name, edit, func(s *v1beta1.SecureStorage) *v1beta1.SecureStorageSpec { return &s.Spec })
}

// VariedFields returns the fields of a spec that differ between choices of some dimension.
func VariedFields(kind string) (map[string]bool, error) {
	env := &Environment{}
	base := variant{kind: kind, choices: map[string]string{}}
	for _, d := range dimensions[kind] {
		base.choices[d.name] = d.choices[0].name
	}
	before, err := specOf(base.object(env, objectName))
	if err != nil {
		return nil, err
	}
	varied := map[string]bool{}
	for _, d := range dimensions[kind] {
		for _, c := range d.choices {
			after, err := specOf(base.with(d.name, c.name).object(env, objectName))
			if err != nil {
				return nil, err
			}
			for _, field := range sortedUnion(before, after) {
				varied[field] = varied[field] || !equality.Semantic.DeepEqual(before[field], after[field])
			}
		}
	}
	return varied, nil
}

func specOf(object client.Object) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("converting %T: %w", object, err)
	}
	spec, _, err := unstructured.NestedMap(fields, "spec")
	return spec, err
}

// variant is a spec: a kind, and a choice in each dimension.
type variant struct {
	kind    string
	choices map[string]string
}

// newVariant draws a variant that does not pause the reconciliation.
func newVariant(kind string, random *rand.Rand) variant {
	v := variant{kind: kind, choices: map[string]string{}}
	for _, d := range dimensions[kind] {
		v.choices[d.name] = d.choices[0].name
		if d.name != suspend && d.name != reportDrift && d.name != observed {
			v.choices[d.name] = d.choices[random.IntN(len(d.choices))].name
		}
	}
	return v
}

// finalVariant draws one of a few variants, which differ for each thousand seeds. It keeps the immutable choices of
// the last variant.
func finalVariant(last variant, seed uint64, random *rand.Rand) variant {
	const (
		few   = 32
		seeds = 1000
		kinds = 100
	)
	number := uint64(random.IntN(few))                                                                     //nolint:gosec // not negative
	final := newVariant(last.kind, rand.New(rand.NewPCG(seed/seeds, kinds*number+uint64(len(last.kind))))) //nolint:gosec // it must be reproducible
	for _, d := range dimensions[last.kind] {
		if d.immutable {
			final = final.with(d.name, last.choices[d.name])
		}
	}
	return final
}

// with returns the variant with another choice.
func (v variant) with(dimension, name string) variant {
	choices := maps.Clone(v.choices)
	choices[dimension] = name
	return variant{v.kind, choices}
}

// randomChange draws other choices for up to three dimensions and describes them.
func (v variant) randomChange(random *rand.Rand) (next variant, what string) {
	const most = 3
	next = v
	var changes []string
	for range 1 + random.IntN(most) {
		d := dimensions[v.kind][random.IntN(len(dimensions[v.kind]))]
		name := d.choices[random.IntN(len(d.choices))].name
		if d.immutable || next.choices[d.name] == name {
			continue
		}
		next = next.with(d.name, name)
		changes = append(changes, d.name+"="+name)
	}
	return next, strings.Join(changes, " ")
}

// isPaused reports whether the object is suspended, its drift is only reported, or its account is only observed.
func (v variant) isPaused() bool {
	return v.choices[suspend] == yes || v.choices[reportDrift] == yes || v.choices[observed] == yes
}

// String returns the choices other than the default, for example "AppService image=2 pods=3-5".
func (v variant) String() string {
	parts := []string{v.kind}
	for _, d := range dimensions[v.kind] {
		if v.choices[d.name] != d.choices[0].name {
			parts = append(parts, d.name+"="+v.choices[d.name])
		}
	}
	return strings.Join(parts, " ")
}

// object returns an object with the spec.
func (v variant) object(env *Environment, name string) client.Object {
	var object client.Object
	switch v.kind {
	case AppService:
		object = NewAppService(name)
	case MCPServer:
		object = NewMCPServer(name, func(s *v1beta1.MCPServerSpec) {
			// A short interval: the next probe soon corrects a missed one. A timeout that a busy machine does not miss.
			s.Protocol.Interval, s.Protocol.Timeout = metav1.Duration{Duration: 10 * time.Second}, metav1.Duration{Duration: 10 * time.Second}
		})
	case SecureStorage:
		object = env.NewSecureStorage(name, func(s *v1beta1.SecureStorageSpec) {
			s.AccountLossPolicy = v1beta1.LossRecreate
			s.PropagationDeadline = metav1.Duration{Duration: 15 * time.Minute} // an edit turns 15m into 15m0s
		})
	default:
		panic(fmt.Sprintf("unknown kind %q", v.kind))
	}
	for _, d := range dimensions[v.kind] {
		i := slices.IndexFunc(d.choices, func(c choice) bool { return c.name == v.choices[d.name] })
		d.choices[i].edit(object)
	}
	return object
}

// assign copies the spec of an object to another one of its kind.
func assign(to, from client.Object) {
	switch to := to.(type) {
	case *v1beta1.AppService:
		if from, ok := from.(*v1beta1.AppService); ok {
			to.Spec = from.Spec
		}
	case *v1beta1.MCPServer:
		if from, ok := from.(*v1beta1.MCPServer); ok {
			to.Spec = from.Spec
		}
	case *v1beta1.SecureStorage:
		if from, ok := from.(*v1beta1.SecureStorage); ok {
			to.Spec = from.Spec
		}
	}
}

// empty returns an empty object of a kind.
func empty(kind string) client.Object {
	switch kind {
	case AppService:
		return &v1beta1.AppService{}
	case MCPServer:
		return &v1beta1.MCPServer{}
	default:
		return &v1beta1.SecureStorage{}
	}
}
