package appservice

import (
	"errors"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/fixpoint-dev/fixpoint/apis/v1beta1"
	"github.com/fixpoint-dev/fixpoint/apis/v1beta1/applyconfiguration"
	"github.com/fixpoint-dev/fixpoint/internal/managertest"
	"github.com/fixpoint-dev/fixpoint/internal/setup"
	"github.com/fixpoint-dev/fixpoint/pkg/ssa/ssatest"
)

func newScheme(g *WithT) *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, autoscalingv2.AddToScheme, batchv1.AddToScheme, corev1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, v1beta1.AddToScheme,
	} {
		g.Expect(add(scheme)).To(Succeed())
	}
	return scheme
}

// stored is an AppService that has not been stored yet.
func stored(changes ...func(*v1beta1.AppServiceSpec)) *v1beta1.AppService {
	app := webApp(changes...)
	app.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "web"}
	return app
}

// watched is the controller as a manager runs it, with one AppService that was reconciled once.
type watched struct {
	*managertest.Manager
	*WithT
	// reconciles counts them, by the reads of the AppService from the cache.
	reconciles int
}

// watch runs a test in a bubble, so that all reconciles of an event have ended after [synctest.Wait].
func watch(t *testing.T, options Options, app *v1beta1.AppService, test func(*watched), objects ...client.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{WithT: NewWithT(t)}
		w.Manager = managertest.New(t, newScheme(w.WithT), ssatest.Options{
			TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{applyconfiguration.NewTypeConverter},
			Intercept: func(call ssatest.Call) error {
				if call.Verb == "get" && call.Kind.Kind == "AppService" && call.Cached && !call.Done {
					w.reconciles++
				}
				return nil
			},
		})
		w.Expect(Setup(t.Context(), w.Manager, options)).To(Succeed())
		stop := w.Run()
		defer stop()
		synctest.Wait()
		for _, object := range append(objects, app) {
			w.Expect(w.Server.Create(t.Context(), object)).To(Succeed())
		}
		w.Send(app)
		synctest.Wait()
		test(w)
	})
}

// after is the number of reconciles that an event causes.
func (w *watched) after(event func()) int {
	before := w.reconciles
	event()
	synctest.Wait()
	return w.reconciles - before
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }

func TestReconcilesWhenWhatItDependsOnChanges(t *testing.T) {
	metadata := func(kind, name string) client.Object {
		object := &metav1.PartialObjectMetadata{ObjectMeta: named(name)}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
		return object
	}
	controlledBy := func(app *v1beta1.AppService, isController bool) metav1.ObjectMeta {
		m := named("web-1")
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "fixpoint.dev/v1beta1", Kind: "AppService", Name: app.Name, UID: app.UID, Controller: &isController}}
		return m
	}
	cases := map[string]struct {
		change func(*v1beta1.AppServiceSpec)
		object func(*v1beta1.AppService) client.Object
		want   bool
	}{
		"a Secret that a variable reads": {
			func(s *v1beta1.AppServiceSpec) { s.Env = []corev1.EnvVar{fromSecret("db", "password", nil)} },
			func(*v1beta1.AppService) client.Object { return metadata("Secret", "db") }, true,
		},
		"another Secret": {
			func(s *v1beta1.AppServiceSpec) { s.Env = []corev1.EnvVar{fromSecret("db", "password", nil)} },
			func(*v1beta1.AppService) client.Object { return metadata("Secret", "other") }, false,
		},
		"a ConfigMap that a variable reads": {
			func(s *v1beta1.AppServiceSpec) { s.Env = []corev1.EnvVar{fromConfigMap("modes", "mode", nil)} },
			func(*v1beta1.AppService) client.Object { return metadata("ConfigMap", "modes") }, true,
		},
		"its ServiceAccount": {
			func(s *v1beta1.AppServiceSpec) { s.ServiceAccountName = "robot" },
			func(*v1beta1.AppService) client.Object { return metadata("ServiceAccount", "robot") }, true,
		},
		"the certificate of its Ingress": {
			func(s *v1beta1.AppServiceSpec) {
				s.Ingress = &v1beta1.Ingress{Host: "a.test", TLSSecretName: "web-tls"}
			},
			func(*v1beta1.AppService) client.Object { return metadata("Secret", "web-tls") }, true,
		},
		"an IngressClass, with an Ingress": {
			func(s *v1beta1.AppServiceSpec) { s.Ingress = &v1beta1.Ingress{Host: "a.test"} },
			func(*v1beta1.AppService) client.Object {
				return &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "nginx"}}
			}, true,
		},
		"an IngressClass, without an Ingress": {
			func(*v1beta1.AppServiceSpec) {},
			func(*v1beta1.AppService) client.Object {
				return &networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: "nginx"}}
			}, false,
		},
		"a Job that it controls": {
			func(*v1beta1.AppServiceSpec) {},
			func(app *v1beta1.AppService) client.Object { return &batchv1.Job{ObjectMeta: controlledBy(app, true)} }, true,
		},
		"a Job that it owns, and does not control": {
			func(*v1beta1.AppServiceSpec) {},
			func(app *v1beta1.AppService) client.Object { return &batchv1.Job{ObjectMeta: controlledBy(app, false)} }, false,
		},
		"its Deployment": {
			func(*v1beta1.AppServiceSpec) {},
			func(app *v1beta1.AppService) client.Object {
				return &appsv1.Deployment{ObjectMeta: controlledBy(app, true)}
			}, true,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			app := stored(c.change)
			watch(t, Options{}, app, func(w *watched) {
				w.Expect(w.after(func() { w.Send(c.object(app)) }) > 0).To(Equal(c.want))
			})
		})
	}
}

// TestReadsWhatItDependsOn runs the controller as a manager does, with the clients of the manager.
func TestReadsWhatItDependsOn(t *testing.T) {
	secret := &corev1.Secret{ObjectMeta: named("db"), Data: map[string][]byte{"other": []byte("x")}}
	app := stored(func(s *v1beta1.AppServiceSpec) { s.Env = []corev1.EnvVar{fromSecret("db", "password", nil)} })
	watch(t, Options{}, app, func(w *watched) {
		w.Expect(w.Server.Writes()).NotTo(ContainElement("create Deployment web"), "a key of the Secret is missing")
		secret.Data["password"] = []byte("y")
		w.Expect(w.Server.Update(t.Context(), secret)).To(Succeed())
		w.Expect(w.after(func() { w.Send(secret) })).To(Equal(1))
		w.Expect(w.Server.Writes()).To(ContainElement("create Deployment web"))
		var d appsv1.Deployment
		w.Expect(w.Server.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: "web"}, &d)).To(Succeed())
		w.Expect(d.ManagedFields).To(HaveExactElements(HaveField("Manager", "fixpoint-appservice")), "as in earlier releases")
	}, secret)
}

// A manager with permissions in some namespaces cannot read what is not namespaced.
func TestWithoutClusterRightsIngressClassesAreNeitherWatchedNorRead(t *testing.T) {
	for _, without := range []bool{false, true} {
		app := stored(func(s *v1beta1.AppServiceSpec) {
			s.Ingress = &v1beta1.Ingress{Host: "a.test", IngressClassName: ptr.To("missing")}
		})
		watch(t, Options{NoClusterRights: without}, app, func(w *watched) {
			w.Expect(w.IsWatched(&networkingv1.IngressClass{})).To(Equal(!without))
		})
	}
}

func TestIngressClassesEnqueueAppServicesWithAnIngress(t *testing.T) {
	g := NewWithT(t)
	with, without := stored(func(s *v1beta1.AppServiceSpec) { s.Ingress = &v1beta1.Ingress{Host: "a.test"} }), stored()
	without.Name = "other"
	reader := fake.NewClientBuilder().WithScheme(newScheme(g)).WithObjects(with, without).Build()

	requests := setup.Enqueue(reader, &v1beta1.AppServiceList{}, hasIngress)(t.Context(), &networkingv1.IngressClass{})

	g.Expect(requests).To(HaveExactElements(HaveField("NamespacedName", types.NamespacedName{Namespace: "shop", Name: "web"})))
}

// TestPlansWithThePermissionsOfTheUser plans an AppService that refers to a Secret.
func TestPlansWithThePermissionsOfTheUser(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "db", errors.New("no"))
	for name, c := range map[string]struct {
		unreadable func(error)
		err        error
		changes    OmegaMatcher
	}{
		"a Secret that the user may read":        {nil, nil, ContainElement("Deployment web")},
		"one that is assumed to exist":           {func(error) {}, forbidden, ContainElement("Deployment web")},
		"an error, without such assumptions":     {nil, forbidden, Not(ContainElement("Deployment web"))},
		"an error that is not about permissions": {func(error) {}, errors.New("unavailable"), Not(ContainElement("Deployment web"))},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			server := ssatest.NewServer(newScheme(g), ssatest.Options{
				TypeConverters: []func(*runtime.Scheme) managedfields.TypeConverter{applyconfiguration.NewTypeConverter},
				Intercept: func(call ssatest.Call) error {
					if call.Kind.Kind == "Secret" && call.Verb == "get" {
						return c.err
					}
					return nil
				},
			})
			app := stored(withPassword)
			secret := &corev1.Secret{ObjectMeta: named("db"), Data: map[string][]byte{"password": []byte("x")}}
			for _, object := range []client.Object{app, secret} {
				g.Expect(server.Create(t.Context(), object)).To(Succeed())
			}
			server.Writes()
			engine, err := NewPlanner(setup.Planning{API: server, Reader: server.Cache(), Unreadable: c.unreadable}, Options{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(engine.Index(server)).To(Succeed())

			var changes []string
			plan, err := engine.Plan(t.Context(), app)
			g.Expect(err).NotTo(HaveOccurred())
			for _, change := range plan.Changes() {
				changes = append(changes, change.Object)
			}

			g.Expect(changes).To(c.changes)
			g.Expect(server.Writes()).To(BeEmpty(), "a plan writes nothing")
		})
	}
}

type managerWithIndexer struct {
	*managertest.Manager
	indexer managertest.FailingIndexer
}

func (m managerWithIndexer) GetFieldIndexer() client.FieldIndexer { return m.indexer }

// Without an index, changes of what an AppService refers to would not be found.
func TestManagerDoesNotStartWithoutItsIndexes(t *testing.T) {
	for name, kind := range map[string]client.Object{"references": &v1beta1.AppService{}, "children": &appsv1.Deployment{}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			m := managertest.New(t, newScheme(g), ssatest.Options{})
			g.Expect(Setup(t.Context(), managerWithIndexer{m, managertest.FailingIndexer{FieldIndexer: m.GetFieldIndexer(), Fails: kind}}, Options{})).To(MatchError(ContainSubstring("refused")))
		})
	}
}
